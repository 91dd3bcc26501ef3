"""Personal models over clients: how their accuracies are distributed, and how they go with the clients' sizes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, PercentFormatter, ScalarFormatter

from fedsol.errors import InputError
from fedsol.report.style import (
    FAINT,
    INK,
    LINE_COLORS,
    MARKERS,
    fedsol_style,
    legend_below,
    light_grid,
    new_figure,
    save_figure,
)


@dataclass(frozen=True)
class Accuracies:
    """Accuracy (between 0 and 1) and training samples of each client, for one method."""

    label: str
    accuracies: Sequence[float]
    sizes: Sequence[int]


def draw_distribution(series: Sequence[Accuracies], path: str | Path, title: str | None = None) -> Path:
    """A box per method (quartiles, whiskers to the outer deciles, the mean as a diamond) over a point per client."""
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
        axes.xaxis.set_major_formatter(PercentFormatter(xmax=1.0))
        light_grid(axes, "x")
        if title:
            axes.set_title(title)
        return save_figure(figure, path)


def _draw_row(axes: Axes, row: int, one: Accuracies) -> None:
    color = LINE_COLORS[row % len(LINE_COLORS)]
    values = np.asarray(one.accuracies, dtype=np.float64)
    # Points are spread by a fixed pattern, so that equal figures give equal files.
    offsets = 0.24 * (((np.arange(len(values)) * 0.618034) % 1.0) - 0.5) + 0.12
    axes.scatter(values, row + offsets, s=11, color=color, alpha=0.55, linewidth=0, zorder=2)
    box: Any = {
        "med": float(np.median(values)),
        "q1": float(np.quantile(values, 0.25)),
        "q3": float(np.quantile(values, 0.75)),
        "whislo": float(np.quantile(values, 0.1)),
        "whishi": float(np.quantile(values, 0.9)),
    }
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
    """Accuracy of every client against the number of samples it trains on, with the running median of each method."""
    _check(series)
    with fedsol_style():
        figure = new_figure(7.2, 4.0 + 0.17 * len(series))
        axes = figure.add_subplot()
        handles = []
        for index, one in enumerate(series):
            color, marker = LINE_COLORS[index % len(LINE_COLORS)], MARKERS[index % len(MARKERS)]
            sizes, values = np.asarray(one.sizes), np.asarray(one.accuracies, dtype=np.float64)
            axes.scatter(sizes, values, s=16, color=color, marker=marker, alpha=0.45, linewidth=0, zorder=2)
            order = np.argsort(sizes, kind="stable")
            middle = _running_median(values[order])
            (line,) = axes.plot(sizes[order], middle, color=color, marker=marker, markevery=(0.1 * (index % 5), 0.25))
            handles.append(line)
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        for set_formatter in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
            set_formatter(ScalarFormatter())
        axes.tick_params(axis="x", which="minor", labelsize=8.5, length=0)
        axes.set(
            xlabel="samples that the client trains on (a point per client; lines are running medians)",
            ylabel="accuracy on its own test set",
        )
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
        light_grid(axes)
        axes.spines["bottom"].set_color(FAINT)
        legend_below(axes, handles, [one.label for one in series], ncols=2)
        if title:
            axes.set_title(title)
        return save_figure(figure, path)


def _running_median(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """The median of each value and its neighbours, a fifth of all together."""
    reach = max(1, len(values) // 10)
    windows = [values[max(0, at - reach) : at + reach + 1] for at in range(len(values))]
    return np.array([np.median(window) for window in windows])


def _check(series: Sequence[Accuracies]) -> None:
    if not series or not all(len(one.accuracies) for one in series):
        raise InputError("there are no accuracies of clients to draw; allowed: one or more for each method")
