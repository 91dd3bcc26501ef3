"""Figure: loss landscapes over the top two eigenvectors of the Hessian, all on one scale."""

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedsol.analysis.landscape import Landscape
from fedsol.errors import InputError
from fedsol.plots.panels import SEQUENTIAL
from fedsol.plots.style import INK, fedsol_style, new_figure, save_pictures

LEVELS = 14
COLUMNS = 3
LETTERS = 10.5
"""Of a title, in an inch."""


def draw_landscapes(found: Sequence[tuple[str, Landscape]], stem: Path, title: str) -> list[Path]:
    """One panel for each model, with lambda_1, lambda_5 and their ratio; the colours mean the same in all."""
    if not found:
        raise InputError("there is no landscape to draw; allowed: one or more")
    surfaces = [np.array(one.losses) for _, one in found]
    finite = np.concatenate([surface[np.isfinite(surface)] for surface in surfaces])
    levels = _levels(float(finite.min()), float(finite.max()))
    columns = min(len(found), COLUMNS)
    rows = math.ceil(len(found) / columns)
    with fedsol_style():
        width = max(3.4 * columns + 0.9, 5.2)
        heading = textwrap.fill(title, int(LETTERS * width))
        figure = new_figure(width, 3.9 * rows + 0.2 + 0.2 * heading.count("\n"))
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, (label, one), surface in zip(panels, found, surfaces, strict=False):
            filled = axes.contourf(one.places, one.places, surface, levels=levels, cmap=SEQUENTIAL, extend="both")
            lines = axes.contour(one.places, one.places, surface, levels=levels, colors=INK, linewidths=0.4)
            axes.clabel(lines, fontsize=6.5, fmt="%.3g")
            axes.plot([0], [0], marker="P", color="white", markeredgecolor=INK, markersize=8)
            axes.set(title=f"{label}\n{_numbers(one)}", xlabel="along v₁", ylabel="along v₂")
            axes.title.set_fontsize(8.5)
            axes.set_aspect("equal")
        for axes in panels[len(found) :]:
            axes.set_visible(False)
        bar = figure.colorbar(filled, ax=list(panels), shrink=0.8, aspect=28, pad=0.02, format="%.3g")
        bar.set_label("loss on training examples (log scale)")
        figure.suptitle(heading, x=0.01, ha="left")
        return save_pictures(figure, stem)


def _levels(low: float, high: float) -> np.ndarray:
    """Evenly spread on a log scale: a bowl's bottom and its rim both show."""
    low = max(low, high * 1e-4, 1e-8)
    return np.geomspace(low, max(high, low * 1.01), LEVELS)


def _numbers(one: Landscape) -> str:
    fifth = f", λ₅ {one.eigenvalues[4]:.3g}" if len(one.eigenvalues) > 4 else ""
    ratio = "" if one.ratio is None else f", λ₁/λ₅ {one.ratio:.2f}"
    return f"λ₁ {one.eigenvalues[0]:.3g}{fifth}{ratio}"
