"""Figure: the accuracy of some methods by one factor after another, a panel for each."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.lines import Line2D

from fedsol.errors import InputError
from fedsol.plots.panels import Spread, number_panel
from fedsol.plots.style import fedsol_style, new_figure, save_pictures

WIDTH = 3.1
"""Of a panel, in inches."""


def draw_factors(
    factors: Mapping[str, Mapping[str, Sequence[Spread]]], stem: Path, title: str, ylabel: str = "test accuracy"
) -> list[Path]:
    """A panel for each factor with a line for each method, the same look in all; empty ones are left out."""
    shown = {
        factor: filled
        for factor, lines in factors.items()
        if (filled := {name: of for name, of in lines.items() if of})
    }
    if not shown:
        raise InputError("there is nothing to draw: no method has a value")
    methods = list(dict.fromkeys(name for lines in shown.values() for name in lines))
    with fedsol_style():
        figure = new_figure(max(WIDTH * len(shown), 4.6), 3.6, title)
        panels = figure.subplots(1, len(shown), sharey=True, squeeze=False).ravel()
        handles: dict[str, Line2D] = {}
        for axes, (factor, lines) in zip(panels, shown.items(), strict=True):
            drawn = number_panel(axes, lines, factor, ylabel if axes is panels[0] else "", methods)
            handles |= dict(zip(lines, drawn, strict=True))
        figure.legend(
            [handles[name] for name in methods],
            methods,
            loc="outside lower left",
            ncols=len(methods),
            handlelength=3.2,
        )
        return save_pictures(figure, stem)
