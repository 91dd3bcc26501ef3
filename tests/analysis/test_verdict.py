"""What a comparison shows, in words, from rows made by hand."""

import pytest

from fedsol.analysis.verdict import common_target, summarize, verdict
from fedsol.config.task import ACCURACY, MEASURES

MAE = MEASURES["mae"]


def rows(*accuracies, classes=()):
    """One row per round; `classes` are the accuracies of two classes by round."""
    found = [{"round": number, "test_accuracy": value} for number, value in enumerate(accuracies, 1)]
    for row, values in zip(found, classes, strict=False):
        row["class_accuracy"] = values
    return found


STEADY = rows(0.5, 0.6, 0.8, classes=[(0.4, 0.6), (0.5, 0.7), (0.8, 0.8)])
FORGETFUL = rows(0.5, 0.7, 0.6, classes=[(0.4, 0.6), (0.9, 0.5), (0.6, 0.6)])


def lines(*methods, measure=ACCURACY, key="test_accuracy"):
    return verdict([summarize(label, seeds, key) for label, seeds in methods], measure)


def test_one_seed():
    assert lines(("fedavg", {0: FORGETFUL}), ("fedsol", {0: STEADY})) == [
        "fedavg: accuracy 60.00 % after the last round; forgot 15.0 points of each class's best, on average; "
        "reached 70% in round 2.",
        "fedsol: accuracy 80.00 % after the last round; forgot 0.0 points of each class's best, on average; "
        "reached 70% in round 3.",
        "fedsol ends 20.0 points ahead of fedavg (one seed, so without a spread), and forgets 15.0 points less.",
    ]


def test_a_method_that_loses_although_it_forgets_less():
    base = {seed: rows(0.9, 0.8 + seed / 100, classes=[(1.0, 0.8), (0.6, 1.0)]) for seed in (0, 1)}
    other = {seed: rows(0.5, 0.6 - seed / 100, classes=[(0.5, 0.5), (0.6, 0.6)]) for seed in (0, 1)}
    assert lines(("a", base), ("b", other))[-1] == (
        "b ends 21.0 points behind a (± 1.4 points over 2 seeds, ahead with 0 of them), although it "
        "forgets 20.0 points less."
    )
    assert lines(("b", other), ("a", base))[-1] == (
        "a ends 21.0 points ahead of b (± 1.4 points over 2 seeds, ahead with 2 of them), although it "
        "forgets 20.0 points more."
    )


def test_a_gap_within_the_spread_over_seeds_is_no_win():
    base = {0: rows(0.70), 1: rows(0.80)}
    assert lines(("a", base), ("b", {0: rows(0.76), 1: rows(0.78)}))[-1] == (
        "b ends 2.0 points ahead of a (± 5.7 points over 2 seeds, ahead with 1 of them: too close to call)."
    )
    # Paired by seed: the same ten points between the seeds, and no doubt about two points.
    paired = lines(("a", base), ("b", {1: rows(0.82), 0: rows(0.72)}))[-1]
    assert paired == "b ends 2.0 points ahead of a (± 0.0 points over 2 seeds, ahead with 2 of them)."
    assert lines(("a", {0: rows(0.5)}), ("b", {0: rows(0.5)}))[-1].startswith("b ends level with a (one seed")


def test_what_is_missing_is_left_out():
    assert lines(("a", {}), ("b", {0: rows(0.5)})) == [
        "b: accuracy 50.00 % after the last round; reached 50% in round 1."
    ]
    assert len(lines(("a", {0: rows(0.5)}), ("b", {1: rows(0.5)}))) == 2  # no seed that both have
    assert lines(("a", {0: rows(None, float("nan"))})) == []
    assert lines(("a", {0: rows(0.5, None)})) == ["a: accuracy 50.00 % after the last round; reached 50% in round 1."]


def test_a_measure_for_which_less_is_better():
    named = [("a", {0: [{"round": 1, "test_mae": 50.0}]}), ("b", {0: [{"round": 1, "test_mae": 40.0}]})]
    assert lines(*named, measure=MAE, key="test_mae") == [
        "a: mean absolute error 50 after the last round.",
        "b: mean absolute error 40 after the last round.",
        "b ends 10 ahead of a (one seed, so without a spread).",
    ]


@pytest.mark.parametrize(
    ("peaks", "target"), [((0.7, 0.9), 0.7), ((0.699, 0.9), 0.65), ((0.04, 0.9), None), ((), None)]
)
def test_the_target_is_what_every_method_reaches(peaks, target):
    found = common_target([summarize(str(peak), {0: rows(0.01, peak)}, "test_accuracy") for peak in peaks])
    assert found == (None if target is None else pytest.approx(target))
