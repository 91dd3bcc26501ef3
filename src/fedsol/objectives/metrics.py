"""Metrics by name, from torchmetrics, in a form that adds up over the parts of a test set to the last bit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsol.core.imports import import_object
from fedsol.core.user_code import describe_user_error
from fedsol.errors import InputError
from fedsol.objectives.base import Objective

if TYPE_CHECKING:
    from torchmetrics import Metric

Value = float | list[list[int]] | None
"""A metric's value; that of a confusion matrix is a table. None if the answers define none, as one class no AUROC."""

COUNTED = ("accuracy",)
"""Metrics that follow from the answers counted in every test."""


@dataclass(frozen=True)
class Scores:
    """What metrics keep of some batches. Whole numbers are added; the rest is lined up batch by batch, in order.

    So the scores of a test set do not depend on how it was split into parts of whole batches.
    """

    added: dict[str, Tensor] = field(default_factory=dict)
    lined_up: dict[str, Tensor] = field(default_factory=dict)

    def __add__(self, other: Scores) -> Scores:
        return Scores(
            {name: tensor + other.added[name] for name, tensor in self.added.items()},
            {name: torch.cat([tensor, other.lined_up[name]]) for name, tensor in self.lined_up.items()},
        )


class Scorer:
    """Computes the metrics of an objective that take more than counting right answers."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._metrics: dict[str, Metric] = {
            measure.key: _own(measure.name) if ":" in measure.name else _MAKERS[measure.name](objective)
            for measure in objective.measures
            if measure.name not in COUNTED
        }

    def batch(self, outputs: Tensor, targets: Tensor) -> Scores:
        """Return the scores of one batch."""
        added, lined_up = {}, {}
        rows, labels = _answers(self.objective, outputs, targets)
        for name, metric in self._metrics.items():
            metric.reset()
            metric.update(rows, labels)
            for state, reduction in metric._reductions.items():
                value = getattr(metric, state)
                if isinstance(value, list):
                    lined_up[f"{name}.{state}"] = torch.cat(value)
                elif value.dtype.is_floating_point:
                    lined_up[f"{name}.{state}"] = value[None]
                else:
                    assert reduction is not None
                    added[f"{name}.{state}"] = value.clone()
        return Scores(added, lined_up)

    def total(self, batches: Iterable[Scores]) -> Scores:
        """Return the scores of several batches, in their order."""
        found = list(batches)
        if not found or not self._metrics:
            return Scores()
        added = {name: torch.stack([one.added[name] for one in found]).sum(dim=0) for name in found[0].added}
        lined_up = {name: torch.cat([one.lined_up[name] for one in found]) for name in found[0].lined_up}
        return Scores(added, lined_up)

    def values(self, scores: Scores) -> dict[str, Value]:
        """Return the metrics' values, by key."""
        found: dict[str, Value] = {}
        for name, metric in self._metrics.items():
            metric.reset()
            for state in metric._reductions:
                key = f"{name}.{state}"
                if key in scores.added:
                    setattr(metric, state, scores.added[key])
                elif isinstance(metric._defaults[state], list):
                    setattr(metric, state, [scores.lined_up[key]])
                else:
                    setattr(metric, state, scores.lined_up[key].sum(dim=0))
            metric._update_count = 1
            found[name] = _value(metric)
        return found


def _value(metric: Metric) -> Value:
    with warnings.catch_warnings():  # about classes that do not occur, which the metrics below leave out
        warnings.simplefilter("ignore", UserWarning)
        value = metric.compute()
    if value.ndim:
        table: list[list[int]] = value.long().tolist()
        return table
    return float(value) if bool(value.isfinite()) else None


def _answers(objective: Objective, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return answers in the task's own units, and targets, as metrics take them: in double precision, on the CPU."""
    rows, labels = objective.rows(outputs, targets)
    rows = rows.detach().double().cpu()
    labels = labels.detach().cpu()
    if objective.kind == "regression":
        return objective.probabilities(rows), objective.probabilities(labels.double())
    if objective.kind == "multilabel":
        return rows.sigmoid(), labels.long()
    return rows.softmax(dim=1), labels


def _classes(name: str, **options: Any) -> Callable[[Objective], Metric]:
    """Return what makes a torchmetrics class of classification for an objective's classes or labels."""

    def make(objective: Objective) -> Metric:
        import torchmetrics.classification as metrics

        several = objective.kind == "multilabel"
        cls = getattr(metrics, f"{'Multilabel' if several else 'Multiclass'}{name}")
        count = {"num_labels" if several else "num_classes": objective.classes}
        made: Metric = cls(**count, **options, validate_args=False)
        return made.set_dtype(torch.float64)

    return make


def _balanced_accuracy(objective: Objective) -> Metric:
    """Return the mean over the classes that occur of the share of right answers."""
    from torchmetrics.classification import MulticlassRecall

    class OfClassesThatOccur(MulticlassRecall):
        def compute(self) -> Tensor:
            right, wrong = cast(Tensor, self.tp), cast(Tensor, self.fn)
            occur = right + wrong > 0
            return (right[occur].double() / (right + wrong)[occur]).mean()

    return OfClassesThatOccur(objective.classes, average=None, validate_args=False)


def _auroc(objective: Objective) -> Metric:
    """Return the mean over the classes or labels that have positive and negative examples."""
    import torchmetrics.classification as metrics

    several = objective.kind == "multilabel"
    base: Any = metrics.MultilabelAUROC if several else metrics.MulticlassAUROC

    class OfClassesThatOccur(base):  # type: ignore[misc]
        def compute(self) -> Tensor:
            targets = torch.cat(self.target)
            shares = (targets if several else F.one_hot(targets, objective.classes)).double().mean(dim=0)
            values: Tensor = super().compute()
            return values[(shares > 0) & (shares < 1)].double().mean()

    made: Metric = OfClassesThatOccur(objective.classes, average=None, validate_args=False)
    return made.set_dtype(torch.float64)


def _r2(_objective: Objective) -> Metric:
    from torchmetrics.regression import R2Score

    class OfAnyNumber(R2Score):
        def compute(self) -> Tensor:
            return super().compute() if self.total > 1 else torch.tensor(torch.nan)

    return OfAnyNumber().set_dtype(torch.float64)


def _regression(name: str, **options: Any) -> Callable[[Objective], Metric]:
    def make(_objective: Objective) -> Metric:
        import torchmetrics.regression as metrics

        made: Metric = getattr(metrics, name)(**options)
        return made.set_dtype(torch.float64)

    return make


def _of_rows(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Objective], Metric]:
    """Return what makes a metric that is the mean of a function of each answer."""

    def make(_objective: Objective) -> Metric:
        from torchmetrics import Metric

        class MeanOfRows(Metric):
            full_state_update = False
            total: Tensor
            rows: Tensor

            def __init__(self) -> None:
                super().__init__()
                self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
                self.add_state("rows", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

            def update(self, answers: Tensor, targets: Tensor) -> None:
                self.total = self.total + function(answers, targets).sum()
                self.rows = self.rows + len(targets)

            def compute(self) -> Tensor:
                return self.total / self.rows

        return MeanOfRows()

    return make


def _own(reference: str) -> Metric:
    """Return a user's function of all answers and targets as a metric."""
    from torchmetrics import Metric

    function: Any = import_object(reference, "task.metrics")
    if not callable(function):
        raise InputError(f"task.metrics: {reference!r} must be a function (got a {type(function).__name__})")

    class Own(Metric):
        full_state_update = False
        answers: list[Tensor]
        targets: list[Tensor]

        def __init__(self) -> None:
            super().__init__()
            self.add_state("answers", [], dist_reduce_fx="cat")
            self.add_state("targets", [], dist_reduce_fx="cat")

        def update(self, answers: Tensor, targets: Tensor) -> None:
            self.answers.append(answers)
            self.targets.append(targets)

        def compute(self) -> Tensor:
            try:
                return torch.tensor(float(function(torch.cat(self.answers), torch.cat(self.targets))))
            except Exception as error:  # a user's function may raise anything
                raise InputError(f"task.metrics: {reference!r} raised {describe_user_error(error)}") from error

    return Own()


def _brier(answers: Tensor, targets: Tensor) -> Tensor:
    """Return the squared distance of probabilities to the truth, summed over classes, for each answer."""
    truth = torch.zeros_like(answers).scatter_(1, targets[:, None], 1.0) if targets.ndim == 1 else targets
    return (answers - truth).square().sum(dim=1)


def _perplexity() -> Callable[[Objective], Metric]:
    def make(_objective: Objective) -> Metric:
        from torchmetrics.text import Perplexity

        class OfRows(Perplexity):
            def update(self, preds: Tensor, target: Tensor) -> None:
                super().update(preds[None].log(), target[None])

        return OfRows().set_dtype(torch.float64)

    return make


_MAKERS: dict[str, Callable[[Objective], Metric]] = {
    "balanced-accuracy": _balanced_accuracy,
    "macro-f1": _classes("F1Score", average="macro"),
    "auroc": _auroc,
    "ece": _classes("CalibrationError", n_bins=15),
    "brier": _of_rows(_brier),
    "confusion": _classes("ConfusionMatrix"),
    "mae": _regression("MeanAbsoluteError"),
    "rmse": _regression("MeanSquaredError", squared=False),
    "r2": _r2,
    "dice": _classes("F1Score", average="macro"),
    "iou": _classes("JaccardIndex", average="macro"),
    "perplexity": _perplexity(),
}
