"""Learning curves: mean and deviation over seeds, gaps where they belong, reproducible pictures."""

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedsol.errors import InputError
from fedsol.plots.curves import Curve, draw_curves, mean_and_std, result_curves


def some_curves(count: int = 3) -> list[Curve]:
    rng = np.random.default_rng(0)
    rounds = list(range(1, 41))
    rise = 1 - np.exp(-np.arange(40) / 10)
    return [
        Curve(
            f"method {index}",
            rounds,
            (0.1 + 0.05 * index + 0.5 * rise + rng.normal(0, 0.01, (3, 40))).tolist(),
        )
        for index in range(count)
    ]


def test_mean_and_sample_deviation_over_seeds() -> None:
    rounds, mean, std = mean_and_std(Curve("a", [1, 2], [[0.1, 0.4], [0.3, 0.4]]))
    assert rounds.tolist() == [1, 2]
    assert mean == pytest.approx([0.2, 0.4])
    assert std == pytest.approx([0.1 * math.sqrt(2), 0.0])


def test_rounds_without_values_are_left_out_and_missing_seeds_do_not_count() -> None:
    rounds, mean, std = mean_and_std(Curve("a", [1, 2, 3], [[0.2, None, 0.5], [0.4, None, None]]))
    assert rounds.tolist() == [1, 3]
    assert mean == pytest.approx([0.3, 0.5])
    assert std == pytest.approx([0.1 * math.sqrt(2), 0.0])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_diverged_seed_leaves_a_gap(bad: float) -> None:
    _, mean, std = mean_and_std(Curve("a", [1, 2], [[0.2, bad], [0.4, 0.4]]))
    assert mean[0] == pytest.approx(0.3)
    assert np.isnan([mean[1], std[1]]).all()


@pytest.mark.parametrize("count", [1, 3, 23])
def test_pictures_are_written_and_repeat_byte_for_byte(tmp_path: Path, count: int) -> None:
    paths = [draw_curves(some_curves(count), tmp_path / name, "Accuracy") for name in ("a.png", "b.png")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with Image.open(paths[0]) as image:
        assert image.size == (1080, 600 if count < 20 else 1290)
        assert len(image.convert("RGB").getcolors(maxcolors=1_000_000)) > 50


@pytest.mark.parametrize(
    "curve",
    [
        Curve("one round", [5], [[0.5], [0.7]]),
        Curve("one value", [1, 2, 3], [[None, 0.5, None]]),
        Curve("diverged", [1, 2], [[math.nan, math.nan]]),
        Curve("_hidden $ name $", [1, 2], [[0.5, 0.6]]),
    ],
)
def test_odd_curves_are_drawn_without_a_warning(tmp_path: Path, curve: Curve) -> None:
    assert draw_curves([curve], tmp_path / "odd.png").stat().st_size > 1000


def test_a_curve_without_values_is_drawn_beside_others(tmp_path: Path) -> None:
    series = [Curve("empty", [1, 2], [[None, None]]), Curve("none", [], []), Curve("x", [1, 2], [[0.1, 0.2]])]
    assert draw_curves(series, tmp_path / "some.png").stat().st_size > 1000


def test_accuracies_are_of_the_test_set_or_where_some_have_none_of_what_clients_held_out() -> None:
    def rows(test: list[float | None], held_out: list[float | None]) -> list[dict[str, float | None]]:
        return [
            {"round": number, "test_accuracy": one, "held_out_accuracy": other}
            for number, (one, other) in enumerate(zip(test, held_out, strict=True), start=1)
        ]

    with_test, without = rows([0.1, None, 0.3], [0.5, 0.6, 0.7]), rows([None, None], [0.2, 0.4])
    nothing = rows([None, None], [None, None])
    curves, shown = result_curves([("a", [with_test, without]), ("b", [nothing])])
    assert shown == "test accuracy"
    assert curves[0] == Curve("a", [1, 2, 3], [[0.1, None, 0.3], [None, None, None]])
    assert curves[1] == Curve("b", [1, 2], [[None, None]])
    curves, shown = result_curves([("a", [with_test]), ("b", [without])])
    assert shown == "accuracy on the clients' hold-out sets"
    assert curves == [Curve("a", [1, 2, 3], [[0.5, 0.6, 0.7]]), Curve("b", [1, 2], [[0.2, 0.4]])]
    curves, shown = result_curves([("b", [without])])
    assert shown == "accuracy on the clients' hold-out sets"
    assert curves == [Curve("b", [1, 2], [[0.2, 0.4]])]
    old = [{"round": 1, "test_accuracy": None}]  # before there was anything held out
    assert result_curves([("c", [old])]) == ([Curve("c", [1], [[None]])], "test accuracy")


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no curves to draw"):
        draw_curves([], tmp_path / "a.png")
    with pytest.raises(InputError, match=r"curve 'x': seed 1: must have 2 values \(got 1\)"):
        draw_curves([Curve("x", [1, 2], [[0.1, 0.2], [0.1]])], tmp_path / "a.png")
    with pytest.raises(InputError, match="curve 'x': has no values"):
        draw_curves([Curve("x", [1, 2], [[None, None]])], tmp_path / "a.png")
    with pytest.raises(InputError, match="curve 'x': has no values"):
        draw_curves([Curve("x", [], [])], tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
