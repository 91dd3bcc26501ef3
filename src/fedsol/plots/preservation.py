"""Figures: what local training keeps of the global model's knowledge, class-wise accuracy, and forgetting."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fedsol.analysis.preservation import Forgetting, Preservation
from fedsol.analysis.series import Series
from fedsol.errors import InputError
from fedsol.plots.curves import Curve
from fedsol.plots.panels import bar_panel, curve_panel, heat_panel
from fedsol.plots.style import fedsol_style, light_grid, line_look, new_figure, save_pictures

Runs = Series[tuple[Preservation, ...]]


def draw_preservation(series: Sequence[Runs], stem: Path, title: str) -> list[Path]:
    """Before and after local training: over rounds if there are several, else bars with the spread over clients."""
    if not any(run for item in series for run in item.runs):
        raise InputError("there is no knowledge preservation to draw; allowed: runs with one round or more")
    if max(len(run) for item in series for run in item.runs) == 1:
        return _draw_bars(series, stem, title)
    with fedsol_style():
        figure = new_figure(9.2, 4.4)
        left, right = figure.subplots(1, 2, sharey=True)
        lines: list[Line2D] = []
        for index, item in enumerate(series):
            found = _by_round(item)
            rounds = list(found)
            before = np.array([fmean([one.before for one in ones]) for ones in found.values()])
            clients = [[value for one in ones for value in one.after] for ones in found.values()]
            after = np.array([fmean(values) for values in clients])
            spread = np.array([stdev(values) if len(values) > 1 else 0.0 for values in clients])
            look, step = line_look(index), max(len(rounds) // 8, 1)
            mark = {"color": look["color"], "marker": look["marker"], "markevery": (step * index // len(series), step)}
            (line,) = left.plot(rounds, before, linestyle="-", label=f"{item.label}: global model, before", **mark)
            (other,) = left.plot(
                rounds,
                after,
                linestyle="--",
                markerfacecolor="white",
                label=f"{item.label}: local models, after",
                **mark,
            )
            left.fill_between(rounds, after - spread, after + spread, color=look["color"], alpha=0.16, linewidth=0)
            lines += [line, other]
            absent = [_mean([value for one in ones for value in one.absent_after]) for ones in found.values()]
            held = [_mean([value for one in ones for value in one.held_after]) for ones in found.values()]
            right.plot(rounds, _gaps(held), linestyle="-", **mark)
            right.plot(rounds, _gaps(absent), linestyle="--", markerfacecolor="white", **mark)
        left.set_title("before and after local training")
        right.set_title("after: classes held (—), absent (- -)")
        for axes in (left, right):
            axes.set(xlabel="round")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
            light_grid(axes)
        left.set_ylabel("accuracy on the global test set")
        figure.legend(handles=lines, loc="outside lower left", ncols=2, handlelength=3.2)
        figure.suptitle(title, x=0.01, ha="left")
        return save_pictures(figure, stem)


def _draw_bars(series: Sequence[Runs], stem: Path, title: str) -> list[Path]:
    groups = ["all classes", "classes the client holds", "classes it does not hold"]
    bars = {}
    for item in series:
        ones = [run[0] for run in item.runs]
        bars[f"{item.label}: before"] = [
            _spread([one.before for one in ones]),
            _spread([value for one in ones for value in one.held_before]),
            _spread([value for one in ones for value in one.absent_before]),
        ]
        bars[f"{item.label}: after"] = [
            _spread([value for one in ones for value in one.after]),
            _spread([value for one in ones for value in one.held_after]),
            _spread([value for one in ones for value in one.absent_after]),
        ]
    with fedsol_style():
        figure = new_figure(9.2, 4.0)
        axes = figure.add_subplot()
        patches = bar_panel(axes, groups, bars, "", "accuracy on the global test set")
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
        figure.legend(handles=patches, loc="outside right upper")
        figure.suptitle(title, x=0.01, ha="left")
        return save_pictures(figure, stem)


def draw_forgetting(series: Sequence[Series[Forgetting]], stem: Path, title: str) -> list[Path]:
    """Class-wise accuracy of the global model by round (a heat map for each label) and forgetting."""
    series = [item for item in series if any(run.rounds for run in item.runs)]
    if not series:
        raise InputError("there is no class-wise accuracy to draw; allowed: runs with one evaluated round or more")
    with fedsol_style():
        figure = new_figure(9.2, 2.9 + 2.0 * len(series))
        panels = figure.subplots(len(series) + 1, 1, sharex=True, height_ratios=[1.0] * len(series) + [1.2])
        edges: list[float] = []
        for axes, item in zip(panels, series, strict=False):
            run = max(item.runs, key=lambda one: len(one.rounds))
            table = _class_table(item, run.rounds)
            heat_panel(figure, axes, table, "accuracy", (0.0, 1.0))
            first, last = run.rounds[0], run.rounds[-1]
            half = (last - first) / (len(run.rounds) - 1) / 2 if last > first else 0.5
            axes.images[0].set_extent((first - half, last + half, len(table) - 0.5, -0.5))
            edges += [first - half, last + half]
            axes.set(ylabel="class", title=f"{item.label}: accuracy of the global model by class")
            axes.yaxis.set_major_locator(MaxNLocator(10, integer=True))
        panels[0].set_xlim(min(edges), max(edges))
        curves = [
            Curve(item.label, rounds, [[table.get(number) for number in rounds] for table in _lost(item)])
            for item in series
            for rounds in [sorted({number for table in _lost(item) for number in table})]
        ]
        lines = curve_panel(
            panels[-1], curves, "forgetting: best so far minus now, mean over classes", "round", "lost", True
        )
        panels[-1].set_ylim(bottom=0.0)
        panels[-1].legend(lines, [item.label for item in series], loc="upper right", handlelength=3.2)
        figure.suptitle(title, x=0.01, ha="left")
        return save_pictures(figure, stem)


def _by_round(item: Runs) -> dict[int, list[Preservation]]:
    """What all seeds have found in each round."""
    numbers = sorted({one.round for run in item.runs for one in run})
    return {number: [one for run in item.runs for one in run if one.round == number] for number in numbers}


def _class_table(item: Series[Forgetting], rounds: Sequence[int]) -> np.ma.MaskedArray[Any, Any]:
    """Accuracy by class and round, the mean over seeds; what has no test examples is masked."""
    tables = [dict(zip(run.rounds, run.classes, strict=True)) for run in item.runs]
    rows = [[table[number] for number in rounds] for table in tables if all(number in table for number in rounds)]
    mean: np.ma.MaskedArray[Any, Any] = np.ma.masked_invalid(np.array(rows, dtype=np.float64)).mean(axis=0)
    return mean.T


def _lost(item: Series[Forgetting]) -> list[dict[int, float]]:
    return [dict(zip(run.rounds, run.forgetting, strict=True)) for run in item.runs]


def _mean(values: Sequence[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return fmean(found) if found else None


def _spread(values: Sequence[float | None]) -> tuple[float, float] | None:
    found = [value for value in values if value is not None]
    if not found:
        return None
    return fmean(found), stdev(found) if len(found) > 1 else 0.0


def _gaps(values: Sequence[float | None]) -> list[float]:
    return [np.nan if value is None else value for value in values]
