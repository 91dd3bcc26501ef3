"""Learning curves: the mean over seeds with a band of one standard deviation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from fedsol.errors import InputError
from fedsol.plots.style import (
    Figure,
    fedsol_style,
    legend_below,
    legend_outside,
    light_grid,
    line_look,
    new_figure,
    save_figure,
)

MARKERS_PER_CURVE = 8
ACCURACIES = (("test_accuracy", "test accuracy"), ("held_out_accuracy", "accuracy on what clients held out"))

Rows = Sequence[Mapping[str, Any]]
"""Rows of metrics.jsonl."""


@dataclass(frozen=True)
class Curve:
    """One method: `values[i][j]` is what seed i measured at `rounds[j]`, None where it was not evaluated."""

    label: str
    rounds: Sequence[float]
    values: Sequence[Sequence[float | None]]


def curve_by_round(label: str, seeds: Sequence[Mapping[int, float | None]]) -> Curve:
    """Return a curve over every round that some seed has."""
    rounds = sorted({number for table in seeds for number in table})
    return Curve(label, rounds, [[table.get(number) for number in rounds] for table in seeds])


def has_values(curve: Curve) -> bool:
    """Whether any seed measured anything."""
    return any(value is not None for row in curve.values for value in row)


def accuracy_curves(runs: Sequence[tuple[str, Sequence[Rows]]]) -> tuple[list[Curve], str]:
    """A curve for each label from the rows of its runs, and what it shows.

    That is the accuracy on the global test set; where no run has one (a deployment whose server has none), the accuracy
    on what clients held out.
    """
    tables = [(label, [{row["round"]: row for row in rows} for rows in seeds]) for label, seeds in runs]
    every = [row for _, seeds in tables for table in seeds for row in table.values()]
    key, name = next((pair for pair in ACCURACIES if any(row.get(pair[0]) is not None for row in every)), ACCURACIES[0])
    curves = [
        curve_by_round(label, [{number: row.get(key) for number, row in table.items()} for table in seeds])
        for label, seeds in tables
    ]
    return curves, name


def mean_and_std(curve: Curve) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Rounds with at least one value, the mean there, and the sample standard deviation (0 for one value).

    Both are over the seeds that have a value in that round. A value that is not finite (a run that diverged)
    makes them NaN, which is drawn as a gap: without that seed the others would look as if it had not been.
    """
    for seed, row in enumerate(curve.values):
        if len(row) != len(curve.rounds):
            raise InputError(
                f"curve {curve.label!r} has {len(row)} values for its seed number {seed}; "
                f"allowed: {len(curve.rounds)}, one per round"
            )
    given = np.array([[value is not None for value in row] for row in curve.values], dtype=bool)
    rows = [[0.0 if value is None else value for value in row] for row in curve.values]
    numbers = np.array(rows, dtype=np.float64)
    if not has_values(curve):
        raise InputError(f"curve {curve.label!r} has no values; allowed: at least one")
    numbers[~np.isfinite(numbers)] = np.nan
    seeds = given.sum(axis=0)
    kept = seeds > 0
    numbers, given, seeds = numbers[:, kept], given[:, kept], seeds[kept]
    mean = numbers.sum(axis=0) / seeds
    squares = (np.where(given, numbers - mean, 0.0) ** 2).sum(axis=0)
    return np.asarray(curve.rounds)[kept], mean, np.sqrt(squares / np.maximum(seeds - 1, 1))


def draw_curves(
    series: Sequence[Curve], path: str | Path, title: str | None = None, ylabel: str = "test accuracy"
) -> Path:
    """Draw all curves into one picture and write it (PNG or PDF)."""
    with fedsol_style():
        return save_figure(curves_figure(series, title, ylabel), path)


def curves_figure(series: Sequence[Curve], title: str | None = None, ylabel: str = "test accuracy") -> Figure:
    """Return a figure of curves of shares, shown in %; a curve without values is in the legend alone."""
    if not series:
        raise InputError("there are no curves to draw; allowed: one or more")
    if not any(has_values(curve) for curve in series):
        raise InputError(f"curve {series[0].label!r} has no values; allowed: at least one")
    below = len(series) > 10 or max(len(curve.label) for curve in series) > 24
    figure = new_figure(7.2, 4.0 + 0.2 * len(series) if below else 4.0)
    axes = figure.add_subplot()
    lines = [draw_curve(axes, curve, index, len(series)) for index, curve in enumerate(series)]
    axes.set(xlabel="round", ylabel=ylabel)
    axes.set_xlim(*_span(series))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
    light_grid(axes)
    labels = [curve.label for curve in series]
    (legend_below if below else legend_outside)(axes, lines, labels, handlelength=3.2)
    if title:
        axes.set_title(title)
    return figure


def _span(series: Sequence[Curve]) -> tuple[float, float]:
    """From the first to the last round of all curves, also where a diverged one has nothing to draw."""
    rounds = [number for curve in series for number in curve.rounds]
    first, last = min(rounds), max(rounds)
    room = 0.015 * (last - first) or 0.5
    return first - room, last + room


def draw_curve(axes: Axes, curve: Curve, index: int, total: int, **look_changes: Any) -> Line2D:
    """One curve with its band, nothing without values; `index` of `total` decides its look, but for what is changed."""
    look = {**line_look(index), **look_changes}
    if not has_values(curve):
        return axes.plot([], [], **look)[0]
    rounds, mean, std = mean_and_std(curve)
    step = max(len(rounds) // MARKERS_PER_CURVE, 1)
    # Curves start their markers at different rounds, so that markers of close curves do not hide each other.
    (line,) = axes.plot(rounds, mean, markevery=(step * index // total, step), zorder=3, **look)
    if len(curve.values) > 1:
        alpha = min(0.16, 0.5 / total)  # many bands on top of each other would hide the lines
        axes.fill_between(rounds, mean - std, mean + std, color=look["color"], alpha=alpha, linewidth=0, zorder=2)
    return line
