"""Figures of accuracy by setting: of a sweep (lines, a heat map, points or bars), and by one factor after another."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedsol.config.task import ACCURACY, Measure
from fedsol.errors import InputError
from fedsol.plots.panels import Spread, bar_panel, heat_panel, log_axis, number_panel, percent_ticks, write_values
from fedsol.plots.style import fedsol_style, legend_outside, light_grid, line_look, new_figure, save_pictures

Row = Mapping[str, Any]
"""A row of a sweep's table: `settings`, `label`, and `final_<metric>` with mean and std (None if all runs failed)."""

MOST_LINES = 10


def draw_sweep(
    rows: Sequence[Row], keys: Sequence[str], stem: Path, title: str, measure: Measure = ACCURACY
) -> list[Path]:
    """Draw the final result of every point of a sweep, with one standard deviation over seeds."""
    rows = [{**row, "final": row[f"final_{measure.key}"]} for row in rows]
    done = [row for row in rows if row["final"] is not None]
    if not done:
        raise InputError("there is nothing to draw: no run of the sweep has a result")
    numeric = [key for key in keys if _is_numeric(rows, key) and len(_values(rows, key)) > 1]
    others = [key for key in keys if key not in numeric]
    with fedsol_style():
        if len(numeric) == 2 and not others and _is_grid(rows, numeric):
            figure = _heat_map(done, numeric, title, measure)
        elif len(numeric) == 1 and len({_name(row, others) for row in done}) <= MOST_LINES:
            figure = _lines(done, numeric[0], others, title, measure)
        elif len(numeric) == len(keys) > 0 and not _is_grid(rows, numeric):
            figure = _scatter(done, numeric, title, measure)
        else:
            figure = _bars(rows, title, measure)
        return save_pictures(figure, stem)


def draw_factors(
    factors: Mapping[str, Mapping[str, Sequence[Spread]]], stem: Path, title: str, ylabel: str = "test accuracy"
) -> list[Path]:
    """Draw a panel for each factor, with a line for each method; skip those without values."""
    filled = {factor: {name: of for name, of in lines.items() if of} for factor, lines in factors.items()}
    shown = {factor: lines for factor, lines in filled.items() if lines}
    if not shown:
        raise InputError("there is nothing to draw: no method has a value")
    methods = list(dict.fromkeys(name for lines in shown.values() for name in lines))
    with fedsol_style():
        figure = new_figure(max(3.1 * len(shown), 4.6), 3.6, title)
        panels = figure.subplots(1, len(shown), sharey=True, squeeze=False).ravel()
        handles: dict[str, Line2D] = {}
        for axes, (factor, lines) in zip(panels, shown.items(), strict=True):
            drawn = number_panel(axes, lines, factor, ylabel if axes is panels[0] else "", methods)
            percent_ticks(axes.yaxis)
            handles |= dict(zip(lines, drawn, strict=True))
        lines_of = [handles[name] for name in methods]
        figure.legend(lines_of, methods, loc="outside lower left", ncols=len(methods), handlelength=3.2)
        return save_pictures(figure, stem)


def _lines(rows: Sequence[Row], key: str, others: Sequence[str], title: str, measure: Measure) -> Figure:
    found: dict[str, list[Spread]] = {}
    for row in rows:
        result = row["final"]
        found.setdefault(_name(row, others), []).append((row["settings"][key], result["mean"], result["std"]))
    figure = new_figure(7.4 if others else 6.4, 4.0)
    axes = figure.add_subplot()
    lines = number_panel(axes, found, key, f"final test {measure.title}")
    if measure.is_share:
        percent_ticks(axes.yaxis)
    axes.set_title(title)
    if others:
        legend_outside(axes, lines, list(found), handlelength=3.2)
    return figure


def _heat_map(rows: Sequence[Row], keys: Sequence[str], title: str, measure: Measure) -> Figure:
    down, across = (sorted(_values(rows, key)) for key in keys)
    table = np.full((len(down), len(across)), np.nan)
    for row in rows:
        place = down.index(row["settings"][keys[0]]), across.index(row["settings"][keys[1]])
        table[place] = row["final"]["mean"] * (100 if measure.is_share else 1)
    figure = new_figure(2.6 + 0.75 * len(across), 1.7 + 0.5 * len(down))
    axes = figure.add_subplot()
    limits = float(np.nanmin(table)), float(np.nanmax(table))
    heat_panel(axes, table, f"final test {measure.title}{', %' if measure.is_share else ''}", limits)
    write_values(axes, table, limits)
    axes.set_xticks(range(len(across)), [f"{value:g}" for value in across])
    axes.set_yticks(range(len(down)), [f"{value:g}" for value in down])
    axes.set(xlabel=keys[1], ylabel=keys[0], title=title)
    return figure


def _scatter(rows: Sequence[Row], keys: Sequence[str], title: str, measure: Measure) -> Figure:
    """Draw what a search has tried: the result by each key."""
    figure = new_figure(max(3.4 * len(keys), 5.0), 3.8, title)
    panels = figure.subplots(1, len(keys), sharey=True, squeeze=False).ravel()
    mean = [row["final"]["mean"] for row in rows]
    best = int(np.argmax(mean) if measure.higher_is_better else np.argmin(mean))
    for axes, key in zip(panels, keys, strict=True):
        places = [row["settings"][key] for row in rows]
        axes.plot(places, mean, linestyle="", marker="o", color=line_look(0)["color"])
        axes.plot(places[best], mean[best], linestyle="", marker="*", markersize=13, color=line_look(1)["color"])
        if min(places) > 0 and max(places) / min(places) >= 10:
            log_axis(axes)
        axes.set_xlabel(key)
        light_grid(axes)
    panels[0].set_ylabel(f"final test {measure.title}")
    if measure.is_share:
        percent_ticks(panels[0].yaxis)
    return figure


def _bars(rows: Sequence[Row], title: str, measure: Measure) -> Figure:
    figure = new_figure(7.4, 1.4 + 0.36 * len(rows))
    axes = figure.add_subplot()
    spreads = [row["final"] and (row["final"]["mean"], row["final"]["std"]) for row in rows]
    bar_panel(axes, [row["label"] for row in rows], {"": spreads}, f"final test {measure.title}", horizontal=True)
    axes.set_title(title)
    if measure.is_share:
        percent_ticks(axes.xaxis)
    return figure


def _values(rows: Sequence[Row], key: str) -> set[Any]:
    return {row["settings"][key] for row in rows}


def _is_numeric(rows: Sequence[Row], key: str) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in _values(rows, key))


def _is_grid(rows: Sequence[Row], keys: Sequence[str]) -> bool:
    """Return whether the rows are all combinations of the keys' values, as in a grid but hardly ever in a search."""
    sizes = [len(_values(rows, key)) for key in keys]
    return len(rows) == int(np.prod(sizes))


def _name(row: Row, keys: Sequence[str]) -> str:
    return " ".join(f"{'' if key == 'algorithm.name' else key + '='}{row['settings'][key]}" for key in keys)
