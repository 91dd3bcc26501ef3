"""Figure: the samples of each class at each client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from fedsol.data.manifest import Indices, Partition, label_counts
from fedsol.errors import InputError
from fedsol.plots.panels import class_ticks, heat_panel, shortened
from fedsol.plots.style import (
    BLUE,
    GRAY,
    class_color,
    fedsol_style,
    legend_outside,
    light_grid,
    new_figure,
    save_figure,
    save_pictures,
    text_color_on,
)

MOST_BARS = 30
MOST_BAR_CLASSES = 24
"""More clients or classes than this are drawn as a heat map."""
THOUSANDS = "{x:,.0f}"
LEGEND: dict[str, Any] = {"title": "class", "handlelength": 1.0, "handleheight": 1.0}


@dataclass(frozen=True)
class Names:
    """What the data calls its classes and clients; empty if they are numbers."""

    classes: Sequence[str] = ()
    clients: Sequence[str] = ()

    def legend(self, classes: int) -> list[str]:
        """Return the number of each class, which stands in the bars, and its name."""
        return [f"{label} {self._of_class(label)}".rstrip() for label in range(classes)]

    def _of_class(self, label: int) -> str:
        name = self.classes[label] if self.classes else ""
        return "" if name == str(label) else shortened(name)


def draw_partition(counts: Indices, path: str | Path, title: str | None = None, names: Names | None = None) -> Path:
    """Draw the samples by client and class, and write the picture (PNG or PDF)."""
    with fedsol_style():
        return save_figure(partition_figure(counts, title, names), path)


def partition_figure(counts: Indices, title: str | None = None, names: Names | None = None) -> Figure:
    """Return the figure of samples by client and class.

    Up to 30 clients are stacked bars, as in the paper's figure; more are a heat map under the clients' sizes.
    """
    clients, classes = counts.shape
    if clients == 0:
        raise InputError("the partition has no clients")
    bars = clients <= MOST_BARS and classes <= MOST_BAR_CLASSES
    return (_bars if bars else _heat_map)(counts, title, names or Names())


def draw_partitions(
    labels: ArrayLike, rows: Sequence[Mapping[str, Partition]], stem: Path, classes: int, title: str
) -> list[Path]:
    """Draw several partitions of the same samples as stacked bars, in rows of named panels."""
    rows = [row for row in rows if row]
    if not rows:
        raise InputError("there are no partitions to draw")
    across = max(len(row) for row in rows)
    counts = [{name: label_counts(labels, partition, classes) for name, partition in row.items()} for row in rows]
    tallest = max(len(table) for row in counts for table in row.values())
    with fedsol_style():
        figure = new_figure(0.9 + 2.7 * across, 0.6 + len(rows) * (0.9 + 0.2 * tallest), title)
        grid = figure.subplots(len(rows), across, squeeze=False, sharex="row")
        for panels, row in zip(grid, counts, strict=True):
            widest = max(int(table.sum(axis=1).max()) for table in row.values())
            for axes, (name, table) in zip(panels, row.items(), strict=False):
                patches = _bar_panel(axes, table, widest, letters=2.5)
                axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
                axes.set_title(name)
                if axes is not panels[0]:
                    axes.set_ylabel("")
            for axes in panels[len(row) :]:
                axes.set_axis_off()
        names = [str(label) for label in range(classes)]
        figure.legend(patches, names, loc="outside right upper", fontsize=8.5, **LEGEND)
        return save_pictures(figure, stem)


def _bars(counts: Indices, title: str | None, names: Names) -> Figure:
    clients, classes = counts.shape
    figure = new_figure(7.2, max(1.7 + 0.26 * clients, 2.4, 0.9 + 0.2 * classes))
    axes = figure.add_subplot()
    patches = _bar_panel(axes, counts, int(counts.sum(axis=1).max()))
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    legend_outside(axes, patches, names.legend(classes), **LEGEND)
    if names.clients:
        axes.set_yticks(range(clients), [shortened(name) for name in names.clients])
    axes.set_title(title or "")
    return figure


def _bar_panel(axes: Axes, counts: Indices, widest: int, letters: float = 1.0) -> list[Rectangle]:
    """Draw stacked bars by client on an axis up to `widest`; return a patch for each class.

    `letters` is the relative width of a letter on this panel.
    """
    clients, classes = counts.shape
    starts = np.cumsum(counts, axis=1) - counts
    patches = []
    look: dict[str, Any] = {"height": 0.78, "edgecolor": "white", "linewidth": 0.6}
    for label in range(classes):
        color, widths, left = class_color(label), counts[:, label], starts[:, label]
        patches.append(axes.barh(np.arange(clients), widths, left=left, color=color, **look).patches[0])
        # The class is written into wide segments, so that the picture is readable without colors.
        needed = widest * letters * (0.012 + 0.013 * len(str(label)))
        for client in np.flatnonzero(widths >= needed).tolist():
            place = (left[client] + widths[client] / 2, client)
            axes.text(*place, str(label), ha="center", va="center_baseline", fontsize=7, color=text_color_on(color))
    for client, size in enumerate(counts.sum(axis=1)):
        beside: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center_baseline"}
        axes.annotate(f"{size:,}", (size, client), fontsize=7.5, color=GRAY, **beside)
    axes.set(xlim=(0, widest * (1 + 0.09 * letters)), ylim=(clients - 0.4, -0.6), xlabel="samples", ylabel="client")
    axes.set_yticks(np.arange(clients))
    axes.xaxis.set_major_formatter(THOUSANDS)
    axes.spines["left"].set_visible(False)
    light_grid(axes, "x")
    return patches


def _heat_map(counts: Indices, title: str | None, names: Names) -> Figure:
    clients, classes = counts.shape
    map_height = float(np.clip(0.2 * classes, 2.1, 5.2))
    figure = new_figure(8.0, map_height + 1.75)
    size_axes, map_axes = figure.subplots(2, 1, sharex=True, height_ratios=(0.9, map_height))
    size_axes.fill_between(
        np.arange(clients + 1) - 0.5, np.append(counts.sum(axis=1), 0), step="post", color=BLUE, linewidth=0
    )
    size_axes.set(ylabel="samples", ylim=(0, None))
    size_axes.yaxis.set_major_formatter(THOUSANDS)
    size_axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    light_grid(size_axes, "y")

    scale = PowerNorm(0.5, vmin=0, vmax=max(int(counts.max()), 1))
    heat_panel(map_axes, counts.T, "samples (square-root scale)", scale, aspect=8.5 * map_height, format=THOUSANDS)
    map_axes.set(xlabel="client", ylabel="class", xlim=(-0.5, clients - 0.5))
    class_ticks(map_axes, classes, names.classes)
    map_axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    map_axes.spines[["top", "right"]].set_visible(True)
    size_axes.set_title(title or "")
    return figure
