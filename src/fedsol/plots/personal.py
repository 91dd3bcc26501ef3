"""Figures of personal models: the distribution of their accuracies, and accuracy against the client's samples."""

import math
import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fedsol.errors import InputError
from fedsol.plots.panels import integer_ticks, log_axis, percent_ticks, shortened
from fedsol.plots.style import GRAY, INK, LINE_COLORS, fedsol_style, light_grid, new_figure, save_figure

MOST_NAMED = 12
"""Clients whose names fit into a panel."""
PANEL_LETTERS = 31
"""In a line of a panel's title."""


@dataclass(frozen=True)
class Accuracies:
    """Accuracy (between 0 and 1) and training samples of each client, for one method."""

    label: str
    accuracies: Sequence[float]
    sizes: Sequence[int]
    names: Sequence[str] = ()
    """Of the clients; empty if they are numbers."""


def draw_distribution(series: Sequence[Accuracies], path: str | Path, title: str | None = None) -> Path:
    """Draw a box per method (quartiles, whiskers at the outer deciles, the mean as a diamond), a point per client."""
    _check(series)
    with fedsol_style():
        figure = new_figure(7.2, 1.3 + 0.42 * len(series))
        axes = figure.add_subplot()
        for row, one in enumerate(series):
            _draw_row(axes, row, one)
        axes.set_yticks(range(len(series)), [one.label for one in series])
        axes.set_ylim(len(series) - 0.4, -0.6)
        lowest = min(min(one.accuracies) for one in series)
        axes.set_xlim(math.floor(10 * lowest) / 10 - 0.02, 1.02)
        axes.set_xlabel(
            "accuracy on the client's own test set\n"
            "(a point per client; box: quartiles, whiskers: deciles, diamond: mean)"
        )
        percent_ticks(axes.xaxis)
        light_grid(axes, "x")
        axes.set_title(title or "")
        return save_figure(figure, path)


def _draw_row(axes: Axes, row: int, one: Accuracies) -> None:
    color = LINE_COLORS[row % len(LINE_COLORS)]
    values = np.asarray(one.accuracies, dtype=np.float64)
    # A fixed pattern of offsets, so that equal figures give equal files.
    offsets = 0.24 * (((np.arange(len(values)) * 0.618034) % 1.0) - 0.5) + 0.12
    axes.scatter(values, row + offsets, s=11, color=color, alpha=0.55, linewidth=0, zorder=2)
    low, lower, median, upper, high = np.quantile(values, (0.1, 0.25, 0.5, 0.75, 0.9)).tolist()
    box: Any = {"whislo": low, "q1": lower, "med": median, "q3": upper, "whishi": high}
    line = {"color": INK, "linewidth": 1.0}
    axes.bxp(
        [box],
        positions=[row - 0.16],
        widths=0.24,
        orientation="horizontal",
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": color, "edgecolor": INK, "linewidth": 0.8, "alpha": 0.75},
        medianprops={**line, "linewidth": 1.8},
        whiskerprops=line,
        capprops=line,
        manage_ticks=False,
    )
    axes.scatter([values.mean()], [row - 0.16], s=26, marker="D", color="white", edgecolor=INK, linewidth=0.9, zorder=5)


def draw_sizes(series: Sequence[Accuracies], path: str | Path, title: str | None = None) -> Path:
    """Draw a panel per method: each client's accuracy by its samples, the running median, and those of the others."""
    _check(series)
    columns = min(len(series), 2 if len(series) <= 4 else 3)
    rows = -(-len(series) // columns)
    medians = [_running_median(one) for one in series]
    with fedsol_style():
        figure = new_figure(7.2, 1.2 + (2.2 if columns < 3 else 1.75) * rows, title or "")
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        panels = list(grid.flat)
        for index, (axes, one) in enumerate(zip(panels, series, strict=False)):
            color = LINE_COLORS[index % len(LINE_COLORS)]
            for other in medians[:index] + medians[index + 1 :]:
                axes.plot(*other, color=GRAY, alpha=0.4, linewidth=0.9, zorder=1)
            axes.scatter(one.sizes, one.accuracies, s=13, color=color, alpha=0.6, linewidth=0, zorder=3)
            axes.plot(*medians[index], color=color, zorder=4)
            _name_points(axes, one)
            axes.set_title(_wrapped(one.label), fontsize=8.5, fontweight="normal", pad=4)
            light_grid(axes)
        for axes in panels[len(series) :]:
            axes.set_axis_off()
        for axes in panels[max(0, len(series) - columns) : len(series)]:
            axes.tick_params(labelbottom=True)
        sizes = [size for one in series for size in one.sizes]
        if max(sizes) < 10 * min(sizes):  # too similar for ticks on a logarithmic axis
            integer_ticks(panels[0].xaxis, 4)
        else:
            log_axis(panels[0], (1.0, 3.0))
        percent_ticks(panels[0].yaxis)
        others = "; gray: those of the other panels" if len(series) > 1 else ""
        figure.supxlabel(
            f"training samples of the client\n(a point per client; line: running median{others})", fontsize=9.5
        )
        figure.supylabel("accuracy on the client's own test set", fontsize=9.5)
        return save_figure(figure, path)


def _name_points(axes: Axes, one: Accuracies) -> None:
    """Write the names of a few clients beside their points."""
    if len(one.names) > MOST_NAMED:
        return
    for name, place in zip(one.names, zip(one.sizes, one.accuracies, strict=True), strict=False):
        beside: dict[str, Any] = {"xytext": (2, 2), "textcoords": "offset points", "annotation_clip": False}
        axes.annotate(shortened(name), place, fontsize=6.5, color=INK, rotation=30, zorder=5, **beside)


def _wrapped(label: str) -> str:
    """Return a label in lines that fit over a panel; the epochs move to the next line first."""
    head, comma, tail = label.rpartition(", ")
    parts = [label] if len(label) <= PANEL_LETTERS or not comma else [f"{head},", tail]
    return "\n".join(line for part in parts for line in textwrap.wrap(part, PANEL_LETTERS))


def _running_median(one: Accuracies) -> tuple[list[int], list[float]]:
    """Return the sizes in order, and the median of each accuracy and its neighbors, a fifth of all together."""
    order = np.argsort(one.sizes, kind="stable").tolist()
    sizes, values = [one.sizes[client] for client in order], [one.accuracies[client] for client in order]
    reach = max(1, len(values) // 10)
    return sizes, [statistics.median(values[max(0, at - reach) : at + reach + 1]) for at in range(len(values))]


def _check(series: Sequence[Accuracies]) -> None:
    if not series or not all(len(one.accuracies) for one in series):
        raise InputError("there are no accuracies of clients to draw")
