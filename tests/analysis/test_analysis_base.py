"""Seeds that belong together, and the data file beside a figure."""

import json
import math
from dataclasses import dataclass

import pytest

from fedsol import Experiment, InputError
from fedsol.analysis.base import Runs, write_data
from fedsol.runs.run import Run


def test_runs_that_differ_by_their_seed_are_one_series():
    experiments = [
        Experiment(algorithm={"name": "fedavg"}),
        Experiment(algorithm={"name": "fedsol", "rho": 1.0}),
        Experiment(algorithm={"name": "fedsol", "rho": 2.0}),
        Experiment(algorithm={"name": "fedsol", "rho": 2.0}, seed=1),
    ]
    runs = Runs([Run(experiment, []) for experiment in experiments], note="PARTIAL")
    found = [(series.label, len(series.runs)) for series in runs.series]
    assert found == [("fedavg", 1), ("fedsol rho=1.0", 1), ("fedsol rho=2.0", 2)]
    assert runs.subject == "digits, dirichlet, alpha 0.1, PARTIAL"


@dataclass(frozen=True)
class Thing:
    values: tuple[float | None, ...]
    inner: dict[str, float]


def test_a_data_file_is_plain_json(tmp_path):
    path = write_data(tmp_path / "new" / "thing.json", [Thing((1.0, None, math.nan), {"a": math.inf})])
    assert json.loads(path.read_text()) == [{"values": [1.0, None, None], "inner": {"a": None}}]
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_data(tmp_path / "file" / "x.json", {})
