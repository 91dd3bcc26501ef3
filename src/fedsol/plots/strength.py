"""Figure: mean Lambda by layer, and how far each layer moved."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from fedsol.analysis.series import Series
from fedsol.analysis.strength import LayerStrengths
from fedsol.errors import InputError
from fedsol.plots.panels import bar_panel, log_axis, short_layer
from fedsol.plots.style import fedsol_style, new_figure, save_pictures

PANELS = (
    ("mean", "mean Lambda", "mean of Lambda (log scale)"),
    ("evenness", "mean Lambda × √n", "1: n weights moved equally far"),
    ("movement", "movement", "‖w − a‖ / ‖a‖"),
)


def draw_strength(series: Sequence[Series[LayerStrengths]], stem: Path, title: str) -> list[Path]:
    """Three panels by layer; bars are means over clients (and seeds, with one standard deviation)."""
    if not series:
        raise InputError("there is no strength to draw; allowed: one run or more")
    layers = list(series[0].runs[0].layers)
    with fedsol_style():
        figure = new_figure(9.6, 1.7 + 0.2 * len(layers) * (1 + 0.4 * len(series)))
        for axes, (name, heading, label) in zip(figure.subplots(1, 3, sharey=True), PANELS, strict=True):
            bars = {
                item.label: [
                    _spread([getattr(run.layers[layer], name) for run in item.runs if layer in run.layers])
                    for layer in layers
                ]
                for item in series
            }
            patches = bar_panel(axes, [short_layer(layer) for layer in layers], bars, heading, label, True)
            if name == "mean":
                positive = [value[0] for row in bars.values() for value in row if value and value[0] > 0] or [0.25]
                # Over several decades one number for each is enough; within one there must be others too.
                log_axis(axes, *([(1.0,)] if max(positive) > 20 * min(positive) else []))
                axes.set_xlim(left=0.4 * min(positive))
        figure.legend(patches, [item.label for item in series], loc="outside right upper")
        figure.suptitle(title, x=0.01, ha="left")
        return save_pictures(figure, stem)


def _spread(values: Sequence[float | None]) -> tuple[float, float] | None:
    found = [value for value in values if value is not None]
    if not found:
        return None
    return fmean(found), stdev(found) if len(found) > 1 else 0.0
