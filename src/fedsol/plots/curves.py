"""Learning curves: the mean over seeds with a band of one standard deviation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedsol.config.task import ACCURACY, Measure
from fedsol.core.statistics import MeanStd, sample_mean_std
from fedsol.errors import InputError
from fedsol.plots.panels import integer_ticks, percent_ticks
from fedsol.plots.style import Figure, fedsol_style, legend_outside, light_grid, line_look, new_figure, save_figure

DIVERGED = MeanStd(math.nan, math.nan)
MARKERS_PER_CURVE = 8

Rows = Sequence[Mapping[str, Any]]
"""Rows of metrics.jsonl."""


@dataclass(frozen=True)
class Curve:
    """One method: `values[i][j]` is the value of seed i at `rounds[j]`, None if it was not evaluated."""

    label: str
    rounds: Sequence[float]
    values: Sequence[Sequence[float | None]]


def curve_by_round(label: str, seeds: Sequence[Mapping[int, float | None]]) -> Curve:
    """Return a curve over every round that any seed has."""
    rounds = sorted({number for table in seeds for number in table})
    return Curve(label, rounds, [[table.get(number) for number in rounds] for table in seeds])


def has_values(curve: Curve) -> bool:
    """Return whether any seed has a value."""
    return any(value is not None for row in curve.values for value in row)


def result_key(groups: Sequence[Rows], measure: Measure = ACCURACY) -> tuple[str, str]:
    """Return under which key groups of rows have their results, and what these are.

    That is a metric on the global test set; if some group has none there (in a deployment, or where clients keep
    weights), on the clients' hold-out sets, or else on validation sets. If no key has all groups, the first with any.
    """
    test = (f"test_{measure.key}", f"test {measure.title}")
    held_out = (f"held_out_{measure.key}", f"{measure.title} on the clients' hold-out sets")
    validation = (f"validation_{measure.key}", f"validation {measure.title}")
    pairs = (test, held_out, validation)
    counts = [sum(any(row.get(key) is not None for row in rows) for rows in groups) for key, _ in pairs]
    enough = len(groups) if len(groups) in counts else 1
    return next((pair for pair, count in zip(pairs, counts, strict=True) if count >= enough), test)


def result_curves(runs: Sequence[tuple[str, Sequence[Rows]]], measure: Measure = ACCURACY) -> tuple[list[Curve], str]:
    """Return a curve of results (`result_key`) for each label from the rows of its runs, and what the curves show."""
    key, name = result_key([[row for rows in seeds for row in rows] for _, seeds in runs], measure)
    curves = [
        curve_by_round(label, [{row["round"]: row.get(key) for row in rows} for rows in seeds]) for label, seeds in runs
    ]
    return curves, name


def mean_and_std(curve: Curve) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the rounds with a value, the mean there, and the sample standard deviation (0 for one value).

    Both are over the seeds that have a value in that round. A value that is not finite (a run that diverged) makes
    them NaN, which is drawn as a gap: skipping that seed would hide it.
    """
    for seed, row in enumerate(curve.values):
        if len(row) != len(curve.rounds):
            raise InputError(
                f"curve {curve.label!r}: seed {seed}: must have {len(curve.rounds)} values (got {len(row)})"
            )
    points = []
    for place, *values in zip(curve.rounds, *curve.values, strict=True):
        known = [value for value in values if value is not None]
        if found := sample_mean_std(known) if all(map(math.isfinite, known)) else DIVERGED:
            points.append((place, *found))
    rounds, mean, std = (np.array(column) for column in zip(*points, strict=True))
    return rounds, mean, std


def draw_curves(
    series: Sequence[Curve],
    path: str | Path,
    title: str | None = None,
    ylabel: str = "test accuracy",
    measure: Measure = ACCURACY,
) -> Path:
    """Draw all curves into one picture and write it (PNG or PDF)."""
    with fedsol_style():
        return save_figure(curves_figure(series, title, ylabel, measure), path)


def curves_figure(
    series: Sequence[Curve], title: str | None = None, ylabel: str = "test accuracy", measure: Measure = ACCURACY
) -> Figure:
    """Return a figure of curves, of shares in %; a curve without values appears in the legend only."""
    if not series:
        raise InputError("there are no curves to draw")
    if not any(has_values(curve) for curve in series):
        raise InputError(f"curve {series[0].label!r}: has no values")
    below = len(series) > 10 or max(len(curve.label) for curve in series) > 24
    figure = new_figure(7.2, 4.0 + 0.2 * len(series) if below else 4.0)
    axes = figure.add_subplot()
    lines = curve_panel(axes, series, title or "", "round", ylabel, percent=measure.is_share)
    rounds = [number for curve in series for number in curve.rounds]
    room = 0.015 * (max(rounds) - min(rounds)) or 0.5
    axes.set_xlim(min(rounds) - room, max(rounds) + room)  # also where a diverged curve has nothing to draw
    place: dict[str, Any] = {"bbox_to_anchor": (0.0, -0.16)} if below else {}
    legend_outside(axes, lines, [curve.label for curve in series], handlelength=3.2, **place)
    return figure


def curve_panel(
    axes: Axes, curves: Sequence[Curve], title: str, xlabel: str, ylabel: str, percent: bool = False
) -> list[Line2D]:
    """Draw curves with bands; return their lines for a legend."""
    lines = [draw_curve(axes, curve, index, len(curves)) for index, curve in enumerate(curves)]
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axes.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    if all(isinstance(place, int) for curve in curves for place in curve.rounds):
        integer_ticks(axes.xaxis)
    if percent:
        percent_ticks(axes.yaxis)
    light_grid(axes)
    return lines


def draw_curve(axes: Axes, curve: Curve, index: int, total: int, **look_changes: Any) -> Line2D:
    """Draw a curve with its band and return its line; `index` of `total` sets its look, apart from the changes."""
    look = {**line_look(index), **look_changes}
    if not has_values(curve):
        return axes.plot([], [], **look)[0]
    rounds, mean, std = mean_and_std(curve)
    step = max(len(rounds) // MARKERS_PER_CURVE, 1)
    # Markers start at different rounds, so that those of close curves do not hide each other.
    (line,) = axes.plot(rounds, mean, markevery=(step * index // total, step), zorder=3, **look)
    if len(curve.values) > 1:
        alpha = min(0.16, 0.5 / total)  # many overlapping bands would hide the lines
        axes.fill_between(rounds, mean - std, mean + std, color=look["color"], alpha=alpha, linewidth=0, zorder=2)
    return line
