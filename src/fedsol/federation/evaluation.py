"""Accuracy of a model on data: in total, by class and over clients."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from fedsol.core.statistics import limited_shares, population_mean_std
from fedsol.core.weights import Weights
from fedsol.data.batches import Batch
from fedsol.models.split import SplitModel


@dataclass(frozen=True)
class Tally:
    """Counts on a part of the test set; the tallies of all parts add up to that of the whole."""

    losses: tuple[float, ...]
    """The summed loss of each batch."""
    correct: tuple[int, ...]
    """Correct answers by class."""
    examples: tuple[int, ...]
    """Examples by class."""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.losses + other.losses,
            tuple(a + b for a, b in zip(self.correct, other.correct, strict=True)),
            tuple(a + b for a, b in zip(self.examples, other.examples, strict=True)),
        )

    @property
    def accuracy(self) -> float:
        """The share of correct answers, between 0 and 1."""
        return sum(self.correct) / sum(self.examples)

    @property
    def loss(self) -> float:
        """The mean cross-entropy. The sum is exact, so it does not depend on how the test set was split."""
        return math.fsum(self.losses) / sum(self.examples)

    @property
    def class_accuracy(self) -> list[float | None]:
        """The share of correct answers by class; None for a class without examples."""
        return [right / count if count else None for right, count in zip(self.correct, self.examples, strict=True)]


@dataclass(frozen=True)
class HoldOutSummary:
    """A model's accuracy on the hold-out sets of several clients."""

    clients: int
    mean: float | None
    """Accuracy on all of their examples together, as far as no client is limited."""
    std: float | None
    """Standard deviation of the clients' accuracies."""
    worst: float | None


def summarize_hold_out(tallies: Iterable[Tally], max_share: float = 1.0) -> HoldOutSummary:
    """Summarize the tests of clients; those without examples are left out.

    No client counts for more than `max_share` of the mean, unless there are too few of them.
    """
    answered = [tally for tally in tallies if sum(tally.examples)]
    accuracies = [tally.accuracy for tally in answered]
    spread = population_mean_std(accuracies)
    if spread is None:
        return HoldOutSummary(0, None, None, None)
    correct = sum(sum(tally.correct) for tally in answered)
    sizes = [sum(tally.examples) for tally in answered]
    mean = correct / sum(sizes)
    if max(sizes) > max_share * sum(sizes):
        shares = limited_shares(sizes, max_share)
        mean = sum(share * accuracy for share, accuracy in zip(shares, accuracies, strict=True))
    return HoldOutSummary(len(answered), mean, spread.std, min(accuracies))


@torch.inference_mode()
def evaluate(model: SplitModel, weights: Weights, batches: Iterable[Batch], classes: int) -> Tally:
    """Count a model's answers on batches, in evaluation mode."""
    model.train(False)
    losses: list[float] = []
    correct = torch.zeros(classes, dtype=torch.int64)
    examples = torch.zeros(classes, dtype=torch.int64)
    for batch in batches:
        logits = model.outputs(weights, batch.inputs)[1]
        losses.append(float(F.cross_entropy(logits, batch.labels, reduction="sum")))
        labels = batch.labels.cpu()
        right = (logits.argmax(dim=1) == batch.labels).cpu()
        examples += torch.bincount(labels, minlength=classes)
        correct += torch.bincount(labels[right], minlength=classes)
    return Tally(tuple(losses), tuple(correct.tolist()), tuple(examples.tolist()))
