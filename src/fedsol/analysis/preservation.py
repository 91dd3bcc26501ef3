"""Knowledge preservation: what local training keeps and loses of what the global model knew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedsol.analysis.base import Analysis, Runs, Series
from fedsol.analysis.replay import LocalRound
from fedsol.analysis.rounds import RoundAnalysis
from fedsol.core.statistics import sample_mean_std
from fedsol.federation.evaluation import Tally
from fedsol.federation.federation import Federation
from fedsol.runs.rows import Row

if TYPE_CHECKING:
    from fedsol.plots.style import Figure

Share = float | None


@dataclass(frozen=True)
class Preservation:
    """Accuracies on the global test set before and after one round of local training.

    FedSOL, section 5, "Knowledge Preservation". For each client also split into the classes that it trains on
    (`held`) and those that it has none of (`absent`); None where there is no such class.
    """

    round: int
    before: float
    """Of the global model that the clients start from."""
    clients: tuple[int, ...]
    after: tuple[float, ...]
    """Of each client's model."""
    held_before: tuple[Share, ...]
    held_after: tuple[Share, ...]
    absent_before: tuple[Share, ...]
    absent_after: tuple[Share, ...]
    classes_before: tuple[Share, ...]
    """Of the global model, by class."""
    classes_after: tuple[Share, ...]
    """Mean over the clients' models, by class."""


def preservation(federation: Federation, done: LocalRound) -> Preservation:
    """Evaluate the global model and every client's model on the whole test set."""
    start = federation.evaluate(done.before.weights)
    tallies = [federation.evaluate(update.weights) for update in done.updates]
    held = [_held(federation, update.client) for update in done.updates]
    absent = [[not has for has in row] for row in held]
    by_class = [tally.class_accuracy for tally in tallies]
    return Preservation(
        done.round,
        start.accuracy,
        tuple(update.client for update in done.updates),
        tuple(tally.accuracy for tally in tallies),
        tuple(accuracy_of(start, row) for row in held),
        tuple(accuracy_of(tally, row) for tally, row in zip(tallies, held, strict=True)),
        tuple(accuracy_of(start, row) for row in absent),
        tuple(accuracy_of(tally, row) for tally, row in zip(tallies, absent, strict=True)),
        tuple(start.class_accuracy),
        tuple(_mean([row[label] for row in by_class]) for label in range(federation.dataset.classes)),
    )


def _held(federation: Federation, client: int) -> list[bool]:
    labels = federation.dataset.train.labels[federation.training_samples(client)]
    return [bool(count) for count in torch.bincount(labels, minlength=federation.dataset.classes)]


def accuracy_of(tally: Tally, classes: Sequence[bool]) -> Share:
    """Return the share of correct answers among examples of the chosen classes; None if there is none."""
    examples = sum(count for count, chosen in zip(tally.examples, classes, strict=True) if chosen)
    right = sum(count for count, chosen in zip(tally.correct, classes, strict=True) if chosen)
    return right / examples if examples else None


def _mean(values: Sequence[Share]) -> Share:
    found = [value for value in values if value is not None]
    return fmean(found) if found else None


@dataclass(frozen=True)
class Forgetting:
    """How much of its best the global model has lost, round by round."""

    rounds: tuple[int, ...]
    classes: tuple[tuple[Share, ...], ...]
    """Accuracy of the global model by round and class."""
    forgetting: tuple[float, ...]
    """Mean over classes of `max_{s <= t} A_c(s) - A_c(t)` (FedNTD, NeurIPS 2022, equation 2, at every round)."""


def forgetting(rows: Sequence[Row]) -> Forgetting:
    """Return it from the rows of metrics alone; rounds that were not evaluated are skipped."""
    evaluated = [row for row in rows if row.get("class_accuracy") is not None]
    table = [tuple(row["class_accuracy"] or ()) for row in evaluated]
    lost: list[float] = []
    best: dict[int, float] = {}
    for row in table:
        present = {label: value for label, value in enumerate(row) if value is not None}
        best = {label: max(value, best.get(label, value)) for label, value in present.items()}
        lost.append(sum(best[label] - value for label, value in present.items()) / max(len(present), 1))
    return Forgetting(tuple(row["round"] for row in evaluated), tuple(table), tuple(lost))


@dataclass(frozen=True)
class ForgettingAnalysis(Analysis[list[Series[Forgetting]]]):
    """Class-wise accuracy of the global model by round (a heat map for each label) and forgetting."""

    stem = "forgetting"

    def measure(self, runs: Runs) -> list[Series[Forgetting]] | None:
        found = [item.map(lambda replay: forgetting(replay.run.rows)) for item in runs.series]
        return found if any(_evaluated(found)) else None

    def draw(self, found: list[Series[Forgetting]], subject: str) -> Figure:
        from fedsol.plots.curves import curve_by_round, curve_panel
        from fedsol.plots.panels import heat_panel, integer_ticks
        from fedsol.plots.style import new_figure

        shown = _evaluated(found)
        figure = new_figure(9.2, 2.9 + 2.0 * len(shown), f"class-wise accuracy, {subject}")
        panels = figure.subplots(len(shown) + 1, 1, sharex=True, height_ratios=[1.0] * len(shown) + [1.2])
        edges: list[float] = []
        for axes, item in zip(panels, shown, strict=False):
            rounds = max((run.rounds for run in item.runs), key=len)
            table = _class_table(item, rounds)
            heat_panel(axes, table, "accuracy", (0.0, 1.0))
            first, last = rounds[0], rounds[-1]
            half = (last - first) / (len(rounds) - 1) / 2 if last > first else 0.5
            axes.images[0].set_extent((first - half, last + half, len(table) - 0.5, -0.5))
            edges += [first - half, last + half]
            axes.set(ylabel="class", title=f"{item.label}: accuracy of the global model by class")
            integer_ticks(axes.yaxis, 10)
        panels[0].set_xlim(min(edges), max(edges))
        curves = [
            curve_by_round(item.label, [dict(zip(run.rounds, run.forgetting, strict=True)) for run in item.runs])
            for item in shown
        ]
        heading = "forgetting: best so far minus now, mean over classes"
        lines = curve_panel(panels[-1], curves, heading, "round", "lost", True)
        panels[-1].set_ylim(bottom=0.0)
        panels[-1].legend(lines, [item.label for item in shown], loc="upper right", handlelength=3.2)
        return figure

    def say(self, found: list[Series[Forgetting]]) -> list[str]:
        lost = {item.label: [run.forgetting[-1] for run in item.runs if run.rounds] for item in _evaluated(found)}
        return [f"{label}: forgetting {fmean(shares):.1%} after the last round" for label, shares in lost.items()]


def _evaluated(found: Sequence[Series[Forgetting]]) -> list[Series[Forgetting]]:
    return [item for item in found if any(run.rounds for run in item.runs)]


def _class_table(item: Series[Forgetting], rounds: Sequence[int]) -> np.ma.MaskedArray[Any, Any]:
    """Return accuracy by class and round, the mean over seeds; what has no test examples is masked."""
    tables = [dict(zip(run.rounds, run.classes, strict=True)) for run in item.runs]
    rows = [[table[number] for number in rounds] for table in tables if all(number in table for number in rounds)]
    mean: np.ma.MaskedArray[Any, Any] = np.ma.masked_invalid(np.array(rows, dtype=np.float64)).mean(axis=0)
    return mean.T


Found = list[Series[tuple[Preservation, ...]]]


@dataclass(frozen=True)
class PreservationAnalysis(RoundAnalysis[Found, Preservation]):
    """Accuracy before and after local training: over rounds if there are several, else bars."""

    stem = "preservation"
    also = (ForgettingAnalysis,)
    row = Preservation

    def measure_round(self, federation: Federation, done: LocalRound) -> Preservation:
        return preservation(federation, done)

    def measure(self, runs: Runs) -> Found:
        return self.over_rounds(runs)

    def draw(self, found: Found, subject: str) -> Figure:
        from fedsol.plots.style import new_figure

        over_rounds = max(len(run) for item in found for run in item.runs) > 1
        figure = new_figure(9.2, 4.4 if over_rounds else 4.0, f"knowledge preservation, {subject}")
        (_draw_rounds if over_rounds else _draw_bars)(figure, found)
        return figure

    def say(self, found: Found) -> list[str]:
        lines = []
        for item in found:
            last = [run[-1] for run in item.runs]
            before, after = fmean([one.before for one in last]), fmean([value for one in last for value in one.after])
            lines.append(
                f"{item.label}: round {last[0].round}, accuracy {before:.1%} before, {after:.1%} after local training"
            )
        return lines


def _draw_rounds(figure: Figure, found: Found) -> None:
    from fedsol.plots.curves import Curve, draw_curve
    from fedsol.plots.panels import integer_ticks, percent_ticks
    from fedsol.plots.style import light_grid

    left, right = figure.subplots(1, 2, sharey=True)
    solid, dashed = {"linestyle": "-"}, {"linestyle": "--", "markerfacecolor": "white"}
    lines, labels = [], []
    for index, item in enumerate(found):
        for axes, name, look, label in (
            (left, "before", solid, "global model, before"),
            (left, "after", dashed, "local models, after"),
            (right, "held_after", solid, ""),
            (right, "absent_after", dashed, ""),
        ):
            values = _by_round(item, name)
            rows = zip_longest(*values.values()) if name == "after" else [[_mean(column) for column in values.values()]]
            line = draw_curve(axes, Curve(item.label, list(values), list(rows)), index, len(found), **look)
            if label:
                lines.append(line)
                labels.append(f"{item.label}: {label}")
    left.set(title="before and after local training", ylabel="accuracy on the global test set")
    right.set_title("after: classes held (—), absent (- -)")
    for axes in (left, right):
        axes.set(xlabel="round")
        integer_ticks(axes.xaxis)
        percent_ticks(axes.yaxis)
        light_grid(axes)
    figure.legend(lines, labels, loc="outside lower left", ncols=2, handlelength=3.2)


def _draw_bars(figure: Figure, found: Found) -> None:
    from fedsol.plots.panels import bar_panel, percent_ticks

    groups = ["all classes", "classes the client holds", "classes it does not hold"]
    bars = {
        f"{item.label}: {when}": [
            sample_mean_std(chain.from_iterable(_by_round(item, name).values()))
            for name in (when, f"held_{when}", f"absent_{when}")
        ]
        for item in found
        for when in ("before", "after")
    }
    axes = figure.add_subplot()
    patches = bar_panel(axes, groups, bars, "", "accuracy on the global test set")
    percent_ticks(axes.yaxis)
    figure.legend(handles=patches, loc="outside right upper")


def _by_round(item: Series[tuple[Preservation, ...]], name: str) -> dict[int, list[Share]]:
    """Return the accuracies that all seeds and clients have in each round."""
    found: dict[int, list[Share]] = {}
    for one in sorted((one for run in item.runs for one in run), key=lambda one: one.round):
        value = getattr(one, name)
        found.setdefault(one.round, []).extend(value if isinstance(value, tuple) else [value])
    return found
