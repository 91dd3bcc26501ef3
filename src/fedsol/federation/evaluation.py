"""What a model answers on data, counted: in total, by class and over clients."""

import functools
import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

from fedsol.core.statistics import limited_shares, population_mean_std
from fedsol.core.weights import Weights
from fedsol.data.batches import Batch
from fedsol.models.split import SplitModel
from fedsol.objectives.metrics import Scorer, Scores, Value


@dataclass(frozen=True)
class Tally:
    """Counts on a part of the test set; the tallies of all parts, in order, add up to that of the whole.

    Answers are counted by class; by label where a sample has several; by number in a regression.
    """

    losses: tuple[float, ...]
    """The summed loss of each batch."""
    correct: tuple[int, ...]
    """Correct answers by class."""
    examples: tuple[int, ...]
    """Examples by class."""
    scores: Scores = field(default_factory=Scores)
    """What further metrics keep of the batches, in order."""
    primary: float | None = None
    """The primary metric, if it was computed where the data is and is not the accuracy; NaN if there is no value."""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.losses + other.losses,
            tuple(a + b for a, b in zip(self.correct, other.correct, strict=True)),
            tuple(a + b for a, b in zip(self.examples, other.examples, strict=True)),
            self.scores + other.scores,
        )

    def totals(self) -> "Tally":
        """Return the sums alone: what a client says about its test, whatever the engine."""
        return Tally((sum(self.losses),), (sum(self.correct),), (sum(self.examples),))

    @property
    def accuracy(self) -> float:
        """The share of correct answers, between 0 and 1."""
        return sum(self.correct) / sum(self.examples)

    @property
    def loss(self) -> float:
        """The mean loss. The sum is exact, so it does not depend on how the test set was split."""
        return math.fsum(self.losses) / sum(self.examples)

    @property
    def class_accuracy(self) -> list[float | None]:
        """The share of correct answers by class; None for a class without examples."""
        return [right / count if count else None for right, count in zip(self.correct, self.examples, strict=True)]


@dataclass(frozen=True)
class HoldOutSummary:
    """A model's accuracy, or another primary metric, on the hold-out sets of several clients."""

    clients: int
    mean: float | None
    """Accuracy on all of their examples together, as far as no client is limited; of other metrics their mean."""
    std: float | None
    """Standard deviation of the clients' accuracies."""
    worst: float | None


def summarize_hold_out(
    tallies: Iterable[Tally], max_share: float = 1.0, worst: Callable[[list[float]], float] = min
) -> HoldOutSummary:
    """Summarize the tests of clients; those without examples, or without a value, are left out.

    No client counts for more than `max_share` of the mean, unless there are too few of them.
    """
    answered = [tally for tally in tallies if sum(tally.examples) and not math.isnan(tally.primary or 0.0)]
    accuracies = [tally.accuracy if tally.primary is None else tally.primary for tally in answered]
    spread = population_mean_std(accuracies)
    if spread is None:
        return HoldOutSummary(0, None, None, None)
    sizes = [sum(tally.examples) for tally in answered]
    mean = sum(sum(tally.correct) for tally in answered) / sum(sizes)
    if max(sizes) > max_share * sum(sizes) or any(tally.primary is not None for tally in answered):
        shares = limited_shares(sizes, max_share)
        mean = sum(share * accuracy for share, accuracy in zip(shares, accuracies, strict=True))
    return HoldOutSummary(len(answered), mean, spread.std, worst(accuracies))


def pooled_loss(tallies: Iterable[Tally], max_share: float = 1.0) -> float | None:
    """Return the mean loss on the sets of several clients; None if there are no examples.

    It is that on all examples together, as far as no client counts for more than `max_share`.
    """
    answered = [tally.totals() for tally in tallies if sum(tally.examples)]
    if not answered:
        return None
    sizes = [sum(tally.examples) for tally in answered]
    if max(sizes) <= max_share * sum(sizes):
        return functools.reduce(operator.add, answered).loss
    shares = limited_shares(sizes, max_share)
    return math.fsum(share * tally.loss for share, tally in zip(shares, answered, strict=True))


@torch.inference_mode()
def evaluate(model: SplitModel, weights: Weights, batches: Iterable[Batch], scorer: Scorer) -> Tally:
    """Count a model's answers on batches, in evaluation mode."""
    model.train(False)
    objective = scorer.objective
    losses: list[float] = []
    scores: list[Scores] = []
    correct = torch.zeros(objective.classes, dtype=torch.int64)
    examples = torch.zeros(objective.classes, dtype=torch.int64)
    for batch in batches:
        outputs = model.outputs(weights, batch.inputs)[1]
        losses.append(float(objective.total_loss(outputs, batch.labels)))
        counts = objective.count(outputs, batch.labels)
        examples += counts.examples
        correct += counts.correct
        scores.append(scorer.batch(outputs, batch.labels))
    return Tally(tuple(losses), tuple(correct.tolist()), tuple(examples.tolist()), scorer.total(scores))


def values_of(tally: Tally, scorer: Scorer) -> dict[str, Value]:
    """Return the metrics of a test by key, the primary one first."""
    found = scorer.values(tally.scores)
    return {m.key: found.get(m.key, tally.accuracy) for m in scorer.objective.measures}
