"""Figure: how far clients move from the global model and from each other."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev

from fedsol.analysis.divergence import Divergence
from fedsol.analysis.series import Series
from fedsol.errors import InputError
from fedsol.report.curves import Curve
from fedsol.report.panels import bar_panel, curve_panel, short_layer
from fedsol.report.style import fedsol_style, new_figure, save_pictures

Runs = Series[tuple[Divergence, ...]]


def draw_divergence(series: Sequence[Runs], stem: Path, title: str) -> list[Path]:
    """Global–local and local–local distances, over rounds if there are several, and by layer in the last one."""
    if not any(run for item in series for run in item.runs):
        raise InputError("there is no divergence to draw; allowed: runs with one round or more")
    layers = list(series[0].runs[0][-1].layers_to_global)
    with fedsol_style():
        figure = new_figure(9.2, 4.2 + 0.2 * len(layers) * (1 + 0.4 * len(series)))
        top, bottom = figure.subfigures(2, 1, height_ratios=(3.4, 0.6 + 0.2 * len(layers) * (1 + 0.4 * len(series))))
        left, right = top.subplots(1, 2)
        over_rounds = max(len(run) for item in series for run in item.runs) > 1
        for axes, name, value, each in (
            (left, "global–local", lambda one: one.global_local, lambda one: one.to_global),
            (right, "local–local", lambda one: one.local_local, lambda one: one.between),
        ):
            if over_rounds:
                curves = [_curve(item, value) for item in series]
                curve_panel(axes, [c for c in curves if c.rounds], name, "round", "distance")
            else:
                bars = {item.label: [_spread([v for run in item.runs for v in each(run[-1])])] for item in series}
                bar_panel(axes, ["mean and std over clients"], bars, name, "distance")
        axes = bottom.subplots(1, 2, sharey=True)
        for panel, name, which in zip(
            axes,
            ("global–local, by layer", "local–local, by layer"),
            ("layers_to_global", "layers_between"),
            strict=True,
        ):
            bars = {
                item.label: [_mean([getattr(run[-1], which).get(layer) for run in item.runs]) for layer in layers]
                for item in series
            }
            handles = bar_panel(panel, [short_layer(n) for n in layers], bars, name, "distance, last round", True)
        bottom.legend(handles, [item.label for item in series], loc="outside right upper")
        figure.suptitle(title, x=0.01, ha="left")
        return save_pictures(figure, stem)


def _curve(item: Runs, value: Callable[[Divergence], float | None]) -> Curve:
    tables = [{one.round: value(one) for one in run} for run in item.runs]
    rounds = sorted({number for table in tables for number, found in table.items() if found is not None})
    return Curve(item.label, rounds, [[table.get(number) for number in rounds] for table in tables])


def _spread(values: Sequence[float]) -> tuple[float, float] | None:
    if not values:
        return None
    return fmean(values), stdev(values) if len(values) > 1 else 0.0


def _mean(values: Sequence[float | None]) -> tuple[float, float] | None:
    return _spread([value for value in values if value is not None])
