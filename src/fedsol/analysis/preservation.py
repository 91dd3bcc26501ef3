"""Knowledge preservation: how much of the global model's knowledge local training preserves and forgets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress, zip_longest
from statistics import fmean

import numpy as np
import torch

from fedsol.analysis.base import Analysis, Runs, Series
from fedsol.analysis.replay import LocalRound
from fedsol.analysis.rounds import RoundAnalysis
from fedsol.core.statistics import known_mean, sample_mean_std
from fedsol.federation.evaluation import Tally
from fedsol.federation.federation import Federation
from fedsol.plots.curves import Curve, curve_by_round, curve_panel, draw_curve
from fedsol.plots.panels import bar_panel, class_ticks, heat_panel, integer_ticks, percent_ticks
from fedsol.plots.style import Figure, light_grid, new_figure
from fedsol.runs.rows import Row

Share = float | None


@dataclass(frozen=True)
class Preservation:
    """Accuracies on the global test set before and after one round of local training.

    FedSOL, section 5, "Knowledge Preservation". For each client also split into the classes that it trains on
    (`held`) and those that it does not have (`absent`); None where there is no such class.
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


def accuracy_of(tally: Tally, classes: Sequence[bool]) -> Share:
    """Return the share of correct answers among examples of the chosen classes; None without examples."""
    examples = sum(compress(tally.examples, classes))
    return sum(compress(tally.correct, classes)) / examples if examples else None


@dataclass(frozen=True)
class Forgetting:
    """How far the global model has fallen from its best accuracy, round by round."""

    rounds: tuple[int, ...]
    classes: tuple[tuple[Share, ...], ...]
    """Accuracy of the global model by round and class."""
    forgetting: tuple[float, ...]
    """Mean over classes of `max_{s <= t} A_c(s) - A_c(t)`: FedNTD's measure (NeurIPS 2022, equation 2) at every round.

    FedNTD takes the maximum over earlier rounds only; with the present one a class at its best counts as 0.
    """
    class_names: tuple[str, ...] = ()


def forgetting(rows: Sequence[Row], class_names: Sequence[str] = ()) -> Forgetting:
    """Return the forgetting from the rows of metrics; rounds that were not evaluated are skipped."""
    evaluated = [row for row in rows if row.get("class_accuracy") is not None]
    table = [tuple(row["class_accuracy"] or ()) for row in evaluated]
    lost: list[float] = []
    best: dict[int, float] = {}
    for row in table:
        present = {label: value for label, value in enumerate(row) if value is not None}
        best = {label: max(value, best.get(label, value)) for label, value in present.items()}
        lost.append(sum(best[label] - value for label, value in present.items()) / max(len(present), 1))
    return Forgetting(tuple(row["round"] for row in evaluated), tuple(table), tuple(lost), tuple(class_names))


@dataclass(frozen=True)
class ForgettingAnalysis(Analysis[list[Series[Forgetting]]]):
    """Class-wise accuracy of the global model by round (a heat map for each label) and forgetting."""

    stem = "forgetting"

    def measure(self, runs: Runs) -> list[Series[Forgetting]] | None:
        found = [item.map(lambda replay: forgetting(replay.run.rows, replay.run.names[0])) for item in runs.series]
        return found if any(_evaluated(found)) else None

    def draw(self, found: list[Series[Forgetting]], subject: str) -> Figure:
        shown = _evaluated(found)
        figure = new_figure(9.2, 2.9 + 2.0 * len(shown), f"class-wise accuracy, {subject}")
        panels = figure.subplots(len(shown) + 1, 1, sharex=True, height_ratios=[1.0] * len(shown) + [1.2])
        edges: list[float] = []
        for axes, item in zip(panels, shown, strict=False):
            rounds = max((run.rounds for run in item.runs), key=len)
            whole = [np.array(run.classes, dtype=np.float64) for run in item.runs if set(run.rounds) >= set(rounds)]
            table = np.ma.masked_invalid(whole).mean(axis=0).T  # classes without test examples are masked
            heat_panel(axes, table, "accuracy", (0.0, 1.0))
            first, last = rounds[0], rounds[-1]
            half = (last - first) / (len(rounds) - 1) / 2 if last > first else 0.5
            axes.images[0].set_extent((first - half, last + half, len(table) - 0.5, -0.5))
            edges += [first - half, last + half]
            axes.set(ylabel="class", title=f"{item.label}: accuracy of the global model by class")
            class_ticks(axes, len(table), item.runs[0].class_names)
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

    def say(self, found: list[Series[Forgetting]]) -> Iterator[str]:
        for item in _evaluated(found):
            lost = fmean(run.forgetting[-1] for run in item.runs if run.rounds)
            yield f"{item.label}: forgetting {lost:.1%} after the last round"


def _evaluated(found: Sequence[Series[Forgetting]]) -> list[Series[Forgetting]]:
    return [item for item in found if any(run.rounds for run in item.runs)]


Found = list[Series[tuple[Preservation, ...]]]


@dataclass(frozen=True)
class PreservationAnalysis(RoundAnalysis[Found, Preservation]):
    """Accuracy before and after local training: over rounds if there are several, else bars."""

    stem = "preservation"
    also = (ForgettingAnalysis,)
    row = Preservation

    def measure_round(self, federation: Federation, done: LocalRound) -> Preservation:
        """Evaluate the global model and every client's model on the whole test set."""
        start = federation.evaluate(done.before.weights)
        tallies = [federation.evaluate(update.weights) for update in done.updates]
        clients = tuple(update.client for update in done.updates)
        labels, classes = federation.dataset.train.labels, federation.dataset.classes
        samples = [labels[federation.training_samples(client)] for client in clients]
        held = [torch.bincount(sample, minlength=classes).bool().tolist() for sample in samples]
        absent = [[not has for has in row] for row in held]
        return Preservation(
            done.round,
            start.accuracy,
            clients,
            tuple(tally.accuracy for tally in tallies),
            tuple(accuracy_of(start, row) for row in held),
            tuple(map(accuracy_of, tallies, held)),
            tuple(accuracy_of(start, row) for row in absent),
            tuple(map(accuracy_of, tallies, absent)),
            tuple(start.class_accuracy),
            tuple(map(known_mean, zip(*(tally.class_accuracy for tally in tallies), strict=True))),
        )

    def draw(self, found: Found, subject: str) -> Figure:
        over_rounds = any(len(run) > 1 for item in found for run in item.runs)
        figure = new_figure(9.2, 4.4 if over_rounds else 4.0, f"knowledge preservation, {subject}")
        (_draw_rounds if over_rounds else _draw_bars)(figure, found)
        return figure

    def say(self, found: Found) -> Iterator[str]:
        for item in found:
            last = [run[-1] for run in item.runs]
            before, after = fmean(one.before for one in last), fmean(value for one in last for value in one.after)
            yield f"{item.label}: round {last[0].round}, accuracy {before:.1%} before, {after:.1%} after local training"


def _draw_rounds(figure: Figure, found: Found) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    solid, dashed = {"linestyle": "-"}, {"linestyle": "--", "markerfacecolor": "white"}
    lines = {}
    for index, item in enumerate(found):
        for axes, name, look, label in (
            (left, "before", solid, "global model, before"),
            (left, "after", dashed, "local models, after"),
            (right, "held_after", solid, ""),
            (right, "absent_after", dashed, ""),
        ):
            values = _by_round(item, name)
            rows = (
                zip_longest(*values.values())
                if name == "after"
                else [[known_mean(column) for column in values.values()]]
            )
            line = draw_curve(axes, Curve(item.label, list(values), list(rows)), index, len(found), **look)
            if label:
                lines[f"{item.label}: {label}"] = line
    left.set(title="before and after local training", ylabel="accuracy on the global test set")
    right.set_title("after: classes held (—), absent (- -)")
    for axes in (left, right):
        axes.set(xlabel="round")
        integer_ticks(axes.xaxis)
        percent_ticks(axes.yaxis)
        light_grid(axes)
    figure.legend(list(lines.values()), list(lines), loc="outside lower left", ncols=2, handlelength=3.2)


def _draw_bars(figure: Figure, found: Found) -> None:
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
    patches = bar_panel(axes, groups, bars, "accuracy on the global test set", same_color=2)
    percent_ticks(axes.yaxis)
    figure.legend(handles=patches, loc="outside right upper")


def _by_round(item: Series[tuple[Preservation, ...]], name: str) -> dict[int, list[Share]]:
    """Return the accuracies that all seeds and clients have in each round."""
    found: dict[int, list[Share]] = {}
    for one in sorted((one for run in item.runs for one in run), key=lambda one: one.round):
        value = getattr(one, name)
        found.setdefault(one.round, []).extend(value if isinstance(value, tuple) else [value])
    return found
