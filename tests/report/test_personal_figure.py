"""Pictures of personal models: drawn for one method or many, the same bytes each time."""

import numpy as np
import pytest

from fedsol.errors import InputError
from fedsol.plots.personal import Accuracies, _running_median, _wrapped, draw_distribution, draw_sizes


def some(count: int) -> list[Accuracies]:
    rng = np.random.default_rng(0)
    return [
        Accuracies(f"method {index}", rng.beta(5, 2, 30).tolist(), rng.integers(10, 900, 30).tolist())
        for index in range(count)
    ]


SAME_SIZE = [Accuracies("a", [0.5, 0.7], [75, 75]), Accuracies("b", [0.5, 0.7], [75, 75])]


@pytest.mark.parametrize("draw", [draw_distribution, draw_sizes])
@pytest.mark.parametrize("series", [some(1), some(12), [Accuracies("one client", [1.0], [1])], SAME_SIZE])
def test_equal_results_give_equal_files(draw, series, tmp_path) -> None:
    first = draw(series, tmp_path / "a.png", "title").read_bytes()
    assert draw(series, tmp_path / "b.png", "title").read_bytes() == first
    assert len(first) > 5000


@pytest.mark.parametrize("draw", [draw_distribution, draw_sizes])
@pytest.mark.parametrize("series", [[], [Accuracies("nobody", [], [])]])
def test_nothing_to_draw_is_an_error(draw, series, tmp_path) -> None:
    with pytest.raises(InputError, match="no accuracies"):
        draw(series, tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


def test_labels_fit_over_their_panels() -> None:
    assert _wrapped("fedavg + finetune, 1 epoch") == "fedavg + finetune, 1 epoch"
    assert _wrapped("fedsol (body) + finetune, 5 epochs") == "fedsol (body) + finetune,\n5 epochs"
    assert all(len(line) <= 31 for line in _wrapped("x" * 40 + ", 5 epochs").split("\n"))


def test_the_running_median_by_hand() -> None:
    shuffled = Accuracies("a", [9.0, 3.0, 2.0, 1.0], [40, 10, 30, 20])
    assert _running_median(shuffled) == ([10, 20, 30, 40], [2.0, 2.0, 2.0, 5.5])
