"""Knowledge preservation: what local training keeps and loses of what the global model knew."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedsol.core.messages import Update
from fedsol.core.weights import Weights
from fedsol.federation.evaluation import Tally
from fedsol.federation.federation import Federation
from fedsol.runs.rows import Row

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


def preservation(federation: Federation, round_number: int, before: Weights, updates: Sequence[Update]) -> Preservation:
    """Evaluates the global model and every client's model on the whole test set."""
    start = federation.evaluate(before)
    tallies = [federation.evaluate(update.weights) for update in updates]
    held = [_held(federation, update.client) for update in updates]
    absent = [[not has for has in row] for row in held]
    by_class = [tally.class_accuracy for tally in tallies]
    return Preservation(
        round_number,
        start.accuracy,
        tuple(update.client for update in updates),
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
    """Share of correct answers among examples of the chosen classes; None if there is none."""
    examples = sum(count for count, chosen in zip(tally.examples, classes, strict=True) if chosen)
    right = sum(count for count, chosen in zip(tally.correct, classes, strict=True) if chosen)
    return right / examples if examples else None


def _mean(values: Sequence[Share]) -> Share:
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None


@dataclass(frozen=True)
class Forgetting:
    """How much of its best the global model has lost, round by round."""

    rounds: tuple[int, ...]
    classes: tuple[tuple[Share, ...], ...]
    """Accuracy of the global model by round and class."""
    forgetting: tuple[float, ...]
    """Mean over classes of `max_{s <= t} A_c(s) - A_c(t)` (FedNTD, NeurIPS 2022, equation 2, at every round)."""


def forgetting(rows: Sequence[Row]) -> Forgetting:
    """From the rows of metrics alone: no training is repeated. Rounds that were not evaluated are left out."""
    evaluated = [row for row in rows if row.get("class_accuracy") is not None]
    table = [tuple(row["class_accuracy"] or ()) for row in evaluated]
    lost: list[float] = []
    best: dict[int, float] = {}
    for row in table:
        present = {label: value for label, value in enumerate(row) if value is not None}
        best = {label: max(value, best.get(label, value)) for label, value in present.items()}
        lost.append(sum(best[label] - value for label, value in present.items()) / max(len(present), 1))
    return Forgetting(tuple(row["round"] for row in evaluated), tuple(table), tuple(lost))
