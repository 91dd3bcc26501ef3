"""Parts that several figures share: lines over numbers, grouped bars, heat maps, ticks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator, PercentFormatter

from fedsol.plots.style import BLUE, INK, LINE_COLORS, light_grid, line_look, text_color_on

HATCHES = ("", "///", "...", "\\\\\\", "xxx", "ooo", "---", "+++")
THIN = {"elinewidth": 0.8}
LONGEST_NAME = 18
"""Letters of a class's or client's name beside an axis."""
MOST_NAMES = 30
"""Rows of a heat map that are all named."""
SEQUENTIAL = LinearSegmentedColormap.from_list("fedsol", ["#FFFFFF", "#9CCBE8", BLUE, "#06283D"])


def percent_ticks(axis: Axis) -> None:
    """Show shares between 0 and 1 as percentages."""
    axis.set_major_formatter(PercentFormatter(xmax=1.0))


def integer_ticks(axis: Axis, most: int = 6) -> None:
    """Put ticks at whole numbers only."""
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


Spread = tuple[float, float, float]
"""A place, the mean there, and one standard deviation."""


def number_panel(
    axes: Axes, lines: Mapping[str, Sequence[Spread]], xlabel: str, ylabel: str, names: Sequence[str] | None = None
) -> list[Line2D]:
    """Draw values over a number, with a line and a band for each name; a wide range gets a log scale.

    A line has the look of its position in `names` (default: those of this panel).
    """
    order = list(names or lines)
    drawn = []
    for name, points in lines.items():
        places, mean, std = (np.array(values) for values in zip(*sorted(points), strict=True))
        look = line_look(order.index(name))
        drawn.append(axes.plot(places, mean, zorder=3, **look)[0])
        axes.fill_between(places, mean - std, mean + std, color=look["color"], alpha=0.16, linewidth=0, zorder=2)
    values = sorted({point[0] for points in lines.values() for point in points})
    if values[0] > 0 and values[-1] / values[0] >= 10:
        log_axis(axes)
    if len(values) <= 8:
        axes.xaxis.set_major_locator(FixedLocator(values))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel=xlabel, ylabel=ylabel)
    light_grid(axes)
    return drawn


def bar_panel(
    axes: Axes,
    groups: Sequence[str],
    bars: Mapping[str, Sequence[tuple[float, float] | None]],
    label: str,
    horizontal: bool = False,
    same_color: int = 1,
) -> list[Patch]:
    """Draw a bar per name in every group, as (value, deviation) or None for a gap; return patches for a legend.

    So many bars in a row have the same color; each has a hatch of its own.
    """
    width = 0.8 / max(len(bars), 1)
    patches = []
    for index, (name, values) in enumerate(bars.items()):
        look: dict[str, Any] = {
            "facecolor": LINE_COLORS[index // same_color % len(LINE_COLORS)],
            "hatch": HATCHES[index % len(HATCHES)],
            "edgecolor": "white",
        }
        first = (index - (len(bars) - 1) / 2) * width
        given = [(place + first, *value) for place, value in enumerate(values) if value is not None]
        places, sizes, spreads = ([item[part] for item in given] for part in range(3))
        error: dict[str, Any] = {"xerr" if horizontal else "yerr": spreads if any(spreads) else None}
        draw = axes.barh if horizontal else axes.bar
        draw(places, sizes, width * 0.94, **look, **error, linewidth=0.4, ecolor=INK, capsize=2.0, error_kw=THIN)
        patches.append(Patch(**look, label=name))
    if horizontal:
        axes.set_yticks(range(len(groups)), groups)
        axes.set(ylim=(len(groups) - 0.4, -0.6), xlabel=label)
    else:
        axes.set_xticks(range(len(groups)), groups)
        axes.set(ylabel=label)
    light_grid(axes, "x" if horizontal else "y")
    return patches


def heat_panel(axes: Axes, table: Any, label: str, scale: Normalize | tuple[float, float], **bar_look: Any) -> None:
    """Draw a table as colors from white to dark blue, readable in gray; gaps (NaN) are hatched.

    `scale` has the numbers for white and dark blue; a table too wide for the picture is smoothed.
    """
    axes.patch.set(hatch="///", edgecolor="#BBBBBB")
    smooth = "nearest" if np.shape(table)[1] <= 1000 else "auto"
    norm = scale if isinstance(scale, Normalize) else Normalize(*scale)
    image = axes.imshow(table, aspect="auto", interpolation=smooth, cmap=SEQUENTIAL, norm=norm)
    axes.tick_params(length=0)
    bar = axes.figure.colorbar(image, ax=axes, label=label, **{"pad": 0.015, "aspect": 18, **bar_look})
    bar.outline.set_linewidth(0.6)


def write_values(axes: Axes, table: Any, limits: tuple[float, float]) -> None:
    """Write the numbers into a heat map."""
    low, high = limits
    for (row, column), value in np.ndenumerate(np.asarray(table, dtype=np.float64)):
        if np.isfinite(value):
            red, green, blue, _ = SEQUENTIAL((value - low) / (high - low) if high > low else 0.5)
            color = text_color_on((red, green, blue))
            axes.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=8, color=color)


def log_axis(axes: Axes, at: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Make the horizontal axis logarithmic, with plain numbers at these places of every decade."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=at))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")


def short_layer(name: str) -> str:
    """Return a tensor's name that fits next to a bar: `body.0.weight` stays, longer ones lose their middle."""
    return name if len(name) <= 26 else f"{name[:11]}…{name[-14:]}"


def shortened(name: str) -> str:
    """Return the name of a class or a client that fits beside an axis."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def class_ticks(axes: Axes, classes: int, names: Sequence[str]) -> None:
    """Write the classes beside a heat map, by their names if they have any; of many, every tenth number."""
    if names and classes <= MOST_NAMES:
        axes.set_yticks(range(classes), [shortened(name) for name in names])
    else:
        axes.set_yticks(range(0, classes, 1 if classes <= MOST_NAMES else 10))
