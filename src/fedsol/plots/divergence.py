"""Figure: how far clients move from the global model and from each other."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

from fedsol.analysis.divergence import Divergence
from fedsol.analysis.series import Series
from fedsol.errors import InputError
from fedsol.plots.curves import Curve
from fedsol.plots.panels import bar_panel, curve_panel, short_layer
from fedsol.plots.style import fedsol_style, new_figure, save_pictures

Runs = Series[tuple[Divergence, ...]]
Kind = Literal["global", "between"]
KINDS: tuple[tuple[str, Kind], ...] = (("global–local", "global"), ("local–local", "between"))


def draw_divergence(series: Sequence[Runs], stem: Path, title: str) -> list[Path]:
    """Global–local and local–local distances, over rounds if there are several, and by layer in the last one."""
    if not any(run for item in series for run in item.runs):
        raise InputError("there is no divergence to draw; allowed: runs with one round or more")
    layers = list(series[0].runs[0][-1].layers_to_global)
    with fedsol_style():
        depth = 0.2 * len(layers) * (1 + 0.4 * len(series))
        figure = new_figure(9.6, 4.4 + depth)
        panels = figure.subplots(2, 2, height_ratios=(2.8, 0.5 + depth))
        over_rounds = max(len(run) for item in series for run in item.runs) > 1
        for column, (name, kind) in enumerate(KINDS):
            if over_rounds:
                curves = [curve for item in series if (curve := _curve(item, kind)).rounds]
                curve_panel(panels[0, column], curves, name, "round", "distance")
            else:
                bars = {item.label: [_spread(_each(item, kind))] for item in series}
                bar_panel(panels[0, column], ["mean and std over clients"], bars, name, "distance")
            layered = {item.label: [_spread(_of_layer(item, kind, layer)) for layer in layers] for item in series}
            shown = [short_layer(layer) if column == 0 else "" for layer in layers]
            handles = bar_panel(panels[1, column], shown, layered, f"{name}, by layer", "distance, last round", True)
        figure.legend(handles, [item.label for item in series], loc="outside right upper")
        figure.suptitle(title, x=0.01, ha="left")
        return save_pictures(figure, stem)


def _curve(item: Runs, kind: Kind) -> Curve:
    tables = [
        {one.round: one.global_local if kind == "global" else one.local_local for one in run} for run in item.runs
    ]
    rounds = sorted({number for table in tables for number, found in table.items() if found is not None})
    return Curve(item.label, rounds, [[table.get(number) for number in rounds] for table in tables])


def _each(item: Runs, kind: Kind) -> list[float]:
    """Distances of every client in the last round of every run."""
    return [value for run in item.runs for value in (run[-1].to_global if kind == "global" else run[-1].between)]


def _of_layer(item: Runs, kind: Kind, layer: str) -> list[float]:
    tables = [run[-1].layers_to_global if kind == "global" else run[-1].layers_between for run in item.runs]
    return [table[layer] for table in tables if layer in table]


def _spread(values: Sequence[float]) -> tuple[float, float] | None:
    if not values:
        return None
    return fmean(values), stdev(values) if len(values) > 1 else 0.0
