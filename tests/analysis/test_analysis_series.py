"""Labels that tell runs apart, seeds that belong together, and the data file beside a figure."""

import json
import math
from dataclasses import dataclass

import pytest

from fedsol import Experiment, InputError
from fedsol.analysis.saving import write_data
from fedsol.analysis.series import group, labels_for


def test_labels_name_what_differs_but_the_seed():
    experiments = [
        Experiment(algorithm={"name": "fedavg"}),
        Experiment(algorithm={"name": "fedsol", "rho": 1.0}),
        Experiment(algorithm={"name": "fedsol", "rho": 2.0}),
        Experiment(algorithm={"name": "fedsol", "rho": 2.0}, seed=1),
    ]
    assert labels_for(experiments) == ["fedavg", "fedsol rho=1.0", "fedsol rho=2.0", "fedsol rho=2.0"]
    grouped = group(experiments, lambda experiment: experiment)
    assert [(series.label, len(series.runs)) for series in grouped] == [
        ("fedavg", 1),
        ("fedsol rho=1.0", 1),
        ("fedsol rho=2.0", 2),
    ]


def test_settings_outside_the_algorithm_are_named_in_full():
    experiments = [Experiment(), Experiment(client={"lr": 0.1}, engine={"kind": "local"})]
    assert labels_for(experiments) == ["fedsol client.lr=0.01", "fedsol client.lr=0.1"]


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
