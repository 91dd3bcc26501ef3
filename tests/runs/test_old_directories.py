"""Run directories of fedsol 0.1.0 are read, reported and resumed to the same end."""

import shutil
from functools import cache
from pathlib import Path

import pytest
import torch

import fedsol
from fedsol import Run
from fedsol.reports.page import write_report
from tests.support.tensors import same_tensors

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "runs-0.1.0"
METHODS = ("fedsol", "scaffold")


@cache
def computes_the_same_bits(method: str) -> bool:
    """Whether this machine trains the first two rounds to the weights that were saved."""
    saved = Run.load(FIXTURES / f"{method}-2")
    return same_tensors(fedsol.train(saved.experiment).weights, saved.weights)


def assert_same(found, expected, exact: bool) -> None:
    """Compare numbers, alone or in lists: all bits, or to 1e-5."""
    assert found == expected if exact else found == pytest.approx(expected, abs=1e-5, rel=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rounds", [2, 4])
def test_an_old_directory_is_read(method, rounds):
    run = Run.load(FIXTURES / f"{method}-{rounds}")
    assert run.experiment.algorithm["name"] == run.settings["algorithm.name"] == method
    assert [row["round"] for row in run.rows] == list(range(1, rounds + 1))
    assert run.final_accuracy == run.rows[-1]["test_accuracy"]
    assert run.checkpoint.round == rounds
    assert run.weights.keys() == run.checkpoint.server.weights.keys()
    assert len(run.partition.partition) == run.checkpoint.server.clients
    assert run.environment["packages"]["fedsol"] == "0.1.0"


@pytest.mark.parametrize("method", METHODS)
def test_an_old_directory_is_resumed_to_the_same_end(method, tmp_path):
    shutil.copytree(FIXTURES / f"{method}-2", tmp_path / "run")
    longer = Run.load(tmp_path / "run").experiment.override({"rounds": 4})
    found, expected = fedsol.train(longer, out=tmp_path / "run", resume=True), Run.load(FIXTURES / f"{method}-4")
    exact = computes_the_same_bits(method)
    assert len(found.rows) == len(expected.rows) == 4
    for row, other in zip(found.rows, expected.rows, strict=True):
        assert row.keys() == other.keys()
        for key in row.keys() - {"seconds"}:
            assert_same(row[key], other[key], exact)
    if exact:
        assert same_tensors(found.weights, expected.weights)
    else:
        torch.testing.assert_close(found.weights, expected.weights, atol=1e-5, rtol=1e-5)
    assert same_tensors(Run.load(tmp_path / "run").weights, found.weights)


def test_old_directories_are_reported(tmp_path):
    runs = write_report([FIXTURES], tmp_path / "report.html")
    assert [run.path.name for run in runs] == ["fedsol-2", "fedsol-4", "scaffold-2", "scaffold-4"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(method in page for method in METHODS)
