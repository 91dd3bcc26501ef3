"""Figure: which client holds how much of which class."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from fedsol.data.manifest import Indices, Partition, label_counts
from fedsol.errors import InputError
from fedsol.plots.style import (
    BLUE,
    GREY,
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


def draw_partition(
    labels: ArrayLike,
    partition: Partition,
    path: str | Path,
    classes: int,
    title: str | None = None,
    class_names: Sequence[str] | None = None,
) -> Path:
    """Draws classes by client and writes the picture (PNG or PDF).

    Up to 30 clients are stacked bars, as in the paper's figure of partitions; more are a heat map of counts
    under the clients' sizes.
    """
    if class_names is not None and len(class_names) != classes:
        raise InputError(f"class_names has {len(class_names)} names; allowed: {classes}, one per class")
    with fedsol_style():
        return save_figure(partition_figure(label_counts(labels, partition, classes), title, class_names), path)


def partition_figure(counts: Indices, title: str | None = None, class_names: Sequence[str] | None = None) -> Figure:
    """Return the figure of samples by client and class."""
    if len(counts) == 0:
        raise InputError("the partition has no clients; allowed: one or more")
    names = [str(name) for name in (class_names or range(counts.shape[1]))]
    bars = len(counts) <= MOST_BARS and len(names) <= MOST_BAR_CLASSES
    return _bars(counts, names, title) if bars else _heat_map(counts, names, title)


def draw_partitions(
    labels: ArrayLike, rows: Sequence[Mapping[str, Partition]], stem: Path, classes: int, title: str
) -> list[Path]:
    """Several partitions of the same samples under their names as stacked bars, in rows of panels."""
    rows = [row for row in rows if row]
    if not rows:
        raise InputError("there are no partitions to draw; allowed: one or more")
    across, names = max(len(row) for row in rows), [str(number) for number in range(classes)]
    counts = [{name: label_counts(labels, partition, classes) for name, partition in row.items()} for row in rows]
    tallest = max(len(table) for row in counts for table in row.values())
    with fedsol_style():
        figure = new_figure(0.9 + 2.7 * across, 0.6 + len(rows) * (0.9 + 0.2 * tallest), title)
        grid = figure.subplots(len(rows), across, squeeze=False, sharex="row")
        for panels, row in zip(grid, counts, strict=True):
            widest = max(int(table.sum(axis=1).max()) for table in row.values())
            for axes, (name, table) in zip(panels, row.items(), strict=False):
                patches = _bar_panel(axes, table, names, widest, letters=2.5)
                axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
                axes.set_title(name)
                if axes is not panels[0]:
                    axes.set_ylabel("")
            for axes in panels[len(row) :]:
                axes.set_axis_off()
        figure.legend(
            patches, names, title="class", loc="outside right upper", handlelength=1.0, handleheight=1.0, fontsize=8.5
        )
        return save_pictures(figure, stem)


def _bars(counts: Indices, names: list[str], title: str | None) -> Figure:
    figure = new_figure(7.2, max(1.7 + 0.26 * len(counts), 2.4, 0.9 + 0.2 * len(names)))
    axes = figure.add_subplot()
    patches = _bar_panel(axes, counts, names, int(counts.sum(axis=1).max()))
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    legend_outside(axes, patches, names, title="class", handlelength=1.0, handleheight=1.0)
    if title:
        axes.set_title(title)
    return figure


def _bar_panel(axes: Axes, counts: Indices, names: list[str], widest: int, letters: float = 1.0) -> list[Rectangle]:
    """Stacked bars by client up to `widest`; returns a patch of each class.

    `letters`: how wide a letter is on this panel, beside a large one's.
    """
    clients = len(counts)
    starts = np.cumsum(counts, axis=1) - counts
    patches = []
    for index, name in enumerate(names):
        color = class_color(index)
        bars = axes.barh(
            np.arange(clients),
            counts[:, index],
            left=starts[:, index],
            height=0.78,
            color=color,
            edgecolor="white",
            linewidth=0.6,
        )
        patches.append(bars.patches[0])
        _name_segments(axes, counts[:, index], starts[:, index], name, text_color_on(color), widest * letters)
    for client, size in enumerate(counts.sum(axis=1)):
        axes.annotate(
            f"{size:,}",
            (size, client),
            (4, 0),
            textcoords="offset points",
            va="center_baseline",
            fontsize=7.5,
            color=GREY,
        )
    axes.set(xlim=(0, widest * (1 + 0.09 * letters)), ylim=(clients - 0.4, -0.6), xlabel="samples", ylabel="client")
    axes.set_yticks(np.arange(clients))
    axes.xaxis.set_major_formatter(_thousands())
    axes.spines["left"].set_visible(False)
    light_grid(axes, "x")
    return patches


def _name_segments(
    axes: Axes, widths: NDArray[Any], starts: NDArray[Any], name: str, color: str, widest: float
) -> None:
    """Writes the class into segments wide enough for it, so that the picture is readable without colours."""
    needed = widest * (0.012 + 0.013 * len(name))
    for client in np.flatnonzero(widths >= needed).tolist():
        middle = starts[client] + widths[client] / 2
        axes.text(middle, client, name, ha="center", va="center_baseline", fontsize=7, color=color)


def _heat_map(counts: Indices, names: list[str], title: str | None) -> Figure:
    clients, classes = counts.shape
    map_height = float(np.clip(0.2 * classes, 2.1, 5.2))
    figure = new_figure(8.0, map_height + 1.75)
    size_axes, map_axes = figure.subplots(2, 1, sharex=True, height_ratios=(0.9, map_height))
    size_axes.fill_between(
        np.arange(clients + 1) - 0.5, np.append(counts.sum(axis=1), 0), step="post", color=BLUE, linewidth=0
    )
    size_axes.set(ylabel="samples", ylim=(0, None))
    size_axes.yaxis.set_major_formatter(_thousands())
    size_axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    light_grid(size_axes, "y")

    colors = LinearSegmentedColormap.from_list("fedsol", ["#FFFFFF", "#9CCBE8", BLUE, "#06283D"])
    image = map_axes.imshow(
        counts.T,
        aspect="auto",
        interpolation="nearest" if clients <= 1000 else "auto",
        cmap=colors,
        norm=PowerNorm(0.5, vmin=0, vmax=max(int(counts.max()), 1)),
    )
    map_axes.set(xlabel="client", ylabel="class", xlim=(-0.5, clients - 0.5))
    shown = np.arange(0, classes, 1 if classes <= 30 else 10)
    map_axes.set_yticks(shown, [names[index] for index in shown])
    map_axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    map_axes.tick_params(length=0)
    for side in ("top", "right"):
        map_axes.spines[side].set_visible(True)
    bar = figure.colorbar(image, ax=map_axes, pad=0.015, aspect=8.5 * map_height, format=_thousands())
    bar.set_label("samples (square-root scale)")
    bar.outline.set_linewidth(0.6)
    if title:
        size_axes.set_title(title)
    return figure


def _thousands() -> FuncFormatter:
    return FuncFormatter(lambda value, _: f"{value:,.0f}")
