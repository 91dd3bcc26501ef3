"""What `import fedsol` offers is a promise: a name is added here on purpose, and never lost by accident."""

from dataclasses import dataclass
from pathlib import Path

import pytest

import fedsol
from fedsol.config.catalog import ALGORITHMS


def test_the_public_names():
    assert sorted(fedsol.__all__) == [
        "Algorithm",
        "Augmentation",
        "Callback",
        "Comparison",
        "Dataset",
        "Experiment",
        "FedsolError",
        "InputError",
        "RoundResult",
        "Run",
        "RunError",
        "Split",
        "StopTraining",
        "compare",
        "fields",
        "gradients",
        "load",
        "personalize",
        "perturbation",
        "plot",
        "register",
        "report",
        "sweep",
        "train",
        "weights",
    ]
    assert all(getattr(fedsol, name) is not None for name in fedsol.__all__)
    assert {*fedsol.__all__} < {*dir(fedsol)}
    assert fedsol._HOMES.keys() == set(fedsol.__all__)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="tarin"):
        fedsol.tarin  # noqa: B018


def test_register_makes_a_name_known_once():
    @fedsol.register("for-this-test")
    @dataclass(frozen=True)
    class Mine(fedsol.Algorithm):
        """FedAvg under another name."""

    try:
        assert fedsol.Experiment(algorithm={"name": "for-this-test"}).algorithm == {"name": "for-this-test"}
        with pytest.raises(fedsol.InputError, match="already the name of another algorithm"):
            fedsol.register("for-this-test")(fedsol.Algorithm)
    finally:
        del ALGORITHMS["for-this-test"]


def test_every_public_name_is_in_the_reference():
    page = (Path(__file__).resolve().parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
    shown = {line.removeprefix("::: ") for line in page.splitlines()}
    missing = [name for name, home in fedsol._HOMES.items() if not shown & {home, f"{home}.{name}"}]
    assert missing == []
