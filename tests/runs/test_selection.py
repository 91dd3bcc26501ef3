"""Which round is the best, and when a run stops: by hand."""

import pytest

from fedsol.config.task import MEASURES
from fedsol.runs.selection import Selection, Stop


def rows(*values, key="validation_accuracy"):
    return [{"round": number, key: value} for number, value in enumerate(values, start=1)]


ACCURACY, RMSE = MEASURES["accuracy"], MEASURES["rmse"]


@pytest.mark.parametrize(
    ("values", "best"),
    [
        ([], None),
        ([None, None], None),
        ([0.5], 1),
        ([0.2, 0.5, 0.4], 2),
        ([0.5, 0.5, 0.4], 1),  # of equals the first
        ([None, 0.2, None, 0.3, float("nan")], 4),
    ],
)
def test_the_best_round(values, best):
    assert Selection(ACCURACY).best_round(rows(*values)) == best


def test_the_best_round_where_lower_is_better():
    assert Selection(RMSE).best_round(rows(3.0, 1.0, 2.0, 1.0, key="validation_rmse")) == 2


@pytest.mark.parametrize(
    ("patience", "values", "stop"),
    [
        (1, [0.1, 0.2, 0.3], None),
        (1, [0.1, 0.1], 2),  # equal is no better
        (2, [0.1, 0.3, 0.2, 0.2, 0.9], 4),
        (2, [0.1, 0.3, 0.2, 0.4, 0.4], None),
        (2, [0.3, None, None, 0.2, None, 0.1], 6),  # only evaluated rounds count
        (3, [], None),
    ],
)
def test_patience(patience, values, stop):
    found = Selection(ACCURACY, patience=patience).find_stop(rows(*values))
    assert (found and found.round) == stop


def test_a_stop_is_the_first_one_whatever_follows():
    rule = Selection(ACCURACY, patience=2, stop_at=0.9)
    assert rule.find_stop(rows(0.5, 0.4, 0.3, 0.95)) == Stop(
        3, "no better validation accuracy than in round 1 for 2 evaluated rounds (server.patience)"
    )
    assert rule.find_stop(rows(0.5, 0.4, 0.9, 0.1, 0.1)) == Stop(
        3, "validation accuracy 90.00 % has reached server.stop_at = 0.9"
    )


@pytest.mark.parametrize(("values", "stop"), [([5.0, 2.1], None), ([5.0, 2.0], 2), ([1.0, 9.0], 1)])
def test_a_target_where_lower_is_better(values, stop):
    found = Selection(RMSE, stop_at=2.0).find_stop(rows(*values, key="validation_rmse"))
    assert (found and found.round) == stop


def test_without_rules_nothing_stops():
    assert Selection(ACCURACY).find_stop(rows(0.5, 0.1, 0.1, 1.0)) is None


def test_only_without_validation_the_test_set_decides():
    assert Selection.of({}) == Selection(ACCURACY, "test")
    assert Selection.of({"data.validation": 0.0, "server.stop_at": 0.9}) == Selection(ACCURACY, "test", stop_at=0.9)
    found = Selection.of({"data.validation": 0.1, "server.patience": 3})
    assert found == Selection(ACCURACY, "validation", patience=3)
    assert (found.has_validation, found.key, found.name) == (True, "validation_accuracy", "validation accuracy")


def test_the_primary_metric_decides():
    found = Selection.of({"data.validation": 0.1, "task.kind": "regression"})
    assert (found.key, found.name) == ("validation_rmse", "validation root mean squared error")
    found = Selection.of({"data.validation": 0.1, "task.metrics": ["macro-f1", "accuracy"]})
    assert found.key == "validation_macro_f1"
