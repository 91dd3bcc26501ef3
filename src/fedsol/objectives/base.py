"""Objective: what a model learns. Its loss, how far two models' outputs are apart, and what is counted in a test."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsol.config.task import MEASURES, Measure, TaskKind

IGNORED = -100
"""The label of a pixel or token that does not count."""

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""From outputs and targets to the mean loss."""


@dataclass(frozen=True)
class Counts:
    """Answers to one batch: how many, and how many of them right, by class, label or target."""

    correct: Tensor
    examples: Tensor


@dataclass(frozen=True)
class Objective(ABC):
    """A task as training and tests see it: a frozen value, the same in every process.

    `outputs` are what the model returns for a batch, `targets` the batch's labels. `rows` brings both into the form in
    which there is one row per answer.
    """

    kind: ClassVar[TaskKind]

    classes: int
    """The size of the model's output: classes, labels or real numbers."""
    measures: tuple[Measure, ...]
    """What is evaluated; the first is the primary one."""
    loss_name: str
    own_loss: LossFunction | None = None
    class_weights: tuple[float, ...] = ()
    target_mean: tuple[float, ...] = ()
    target_std: tuple[float, ...] = ()

    @property
    def primary(self) -> Measure:
        """The metric that is shown."""
        return self.measures[0]

    def output_shape(self, inputs: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the outputs for one input of a shape."""
        return (self.classes,)

    def rows(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs and targets with one row per answer."""
        return outputs, targets

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        if self.own_loss is not None:
            return self.own_loss(outputs, targets)
        return self._loss(*self.rows(outputs, targets), reduction="mean")

    def total_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the summed loss of a batch, all classes weighted equally; a test divides it by its examples."""
        if self.own_loss is not None:
            return self.own_loss(outputs, targets) * int(self.count(outputs, targets).examples.sum())
        return self._loss(*self.rows(outputs, targets), reduction="sum")

    @property
    @abstractmethod
    def guessing_loss(self) -> float | None:
        """The loss of a model that knows nothing, if known."""

    @abstractmethod
    def divergence(self, anchor: Tensor, outputs: Tensor, targets: Tensor, tau: float) -> Tensor:
        """Return how far the outputs are from the anchor's, a mean over answers: FedSOL's proximal loss."""

    @abstractmethod
    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return what the outputs say in the task's own units: probabilities, or real numbers."""

    @abstractmethod
    def count(self, outputs: Tensor, targets: Tensor) -> Counts:
        """Count the answers of a batch."""

    @abstractmethod
    def _loss(self, rows: Tensor, targets: Tensor, reduction: str) -> Tensor: ...

    def _weights(self, like: Tensor) -> Tensor | None:
        return torch.tensor(self.class_weights, device=like.device) if self.class_weights else None


class Classification(Objective):
    """One class per sample."""

    kind: ClassVar[TaskKind] = "classification"

    @property
    def guessing_loss(self) -> float | None:
        return math.log(max(self.classes, 2)) if self.own_loss is None else None

    def _loss(self, rows: Tensor, targets: Tensor, reduction: str) -> Tensor:
        if not len(targets):  # a batch in which nothing counts teaches nothing
            return rows.sum()
        weights = self._weights(rows) if reduction == "mean" else None
        if self.loss_name == "focal":
            return _focal(rows, targets, weights, reduction)
        return F.cross_entropy(rows, targets, weight=weights, reduction=reduction)

    def divergence(self, anchor: Tensor, outputs: Tensor, targets: Tensor, tau: float) -> Tensor:
        """Return `KL(softmax(anchor / tau) || softmax(outputs / tau))` along the class axis, mean over answers."""
        return kl(self.rows(anchor, targets)[0], self.rows(outputs, targets)[0], tau)

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(dim=1)

    def count(self, outputs: Tensor, targets: Tensor) -> Counts:
        rows, labels = self.rows(outputs, targets)
        right = (rows.argmax(dim=1) == labels).cpu()
        labels = labels.cpu()
        by_class = torch.bincount(labels, minlength=self.classes)
        return Counts(torch.bincount(labels[right], minlength=self.classes), by_class)


class Segmentation(Classification):
    """One class per pixel: outputs (N, classes, H, W), targets (N, H, W)."""

    kind: ClassVar[TaskKind] = "segmentation"

    def output_shape(self, inputs: tuple[int, ...]) -> tuple[int, ...]:
        return (self.classes, *inputs[1:])

    def rows(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return _counted(outputs.movedim(1, -1), targets)


class NextToken(Classification):
    """The token that follows each token: outputs (N, T, vocabulary), targets (N, T)."""

    kind: ClassVar[TaskKind] = "next-token"

    def output_shape(self, inputs: tuple[int, ...]) -> tuple[int, ...]:
        return (*inputs, self.classes)

    def rows(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return _counted(outputs, targets)

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(dim=-1)


class Multilabel(Objective):
    """Several labels per sample, each there or not: outputs and targets (N, labels)."""

    kind: ClassVar[TaskKind] = "multilabel"

    @property
    def guessing_loss(self) -> float | None:
        return math.log(2) if self.own_loss is None else None

    def _loss(self, rows: Tensor, targets: Tensor, reduction: str) -> Tensor:
        weights = self._weights(rows) if reduction == "mean" else None
        return F.binary_cross_entropy_with_logits(rows, targets, pos_weight=weights, reduction=reduction)

    def divergence(self, anchor: Tensor, outputs: Tensor, targets: Tensor, tau: float) -> Tensor:
        """Return the KL divergence of independent Bernoulli variables: a sum over labels, mean over samples."""
        yes, no = F.logsigmoid(anchor / tau), F.logsigmoid(-anchor / tau)
        gap = yes.exp() * (yes - F.logsigmoid(outputs / tau)) + no.exp() * (no - F.logsigmoid(-outputs / tau))
        return gap.sum(dim=1).mean()

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.sigmoid()

    def count(self, outputs: Tensor, targets: Tensor) -> Counts:
        right = ((outputs > 0) == (targets > 0.5)).sum(dim=0).cpu()
        return Counts(right, torch.full_like(right, len(targets)))


class Regression(Objective):
    """Real numbers: outputs and targets (N, numbers), both standardized."""

    kind: ClassVar[TaskKind] = "regression"

    @property
    def guessing_loss(self) -> float | None:
        """The variance of standardized targets: what their mean as the answer costs."""
        return 1.0 if self.loss_name == "squared-error" else None

    def _loss(self, rows: Tensor, targets: Tensor, reduction: str) -> Tensor:
        if self.loss_name == "absolute-error":
            return F.l1_loss(rows, targets, reduction=reduction)
        loss = F.huber_loss if self.loss_name == "huber" else F.mse_loss
        return loss(rows, targets, reduction=reduction)

    def divergence(self, anchor: Tensor, outputs: Tensor, targets: Tensor, tau: float) -> Tensor:
        """Return `||anchor - outputs||^2 / (2 tau^2)`, mean over samples: the KL of Gaussians of deviation `tau`."""
        return ((anchor - outputs) / tau).square().sum(dim=1).mean() / 2

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return the numbers in the units of the data."""
        if not self.target_std:
            return outputs
        return outputs * outputs.new_tensor(self.target_std) + outputs.new_tensor(self.target_mean)

    def count(self, outputs: Tensor, targets: Tensor) -> Counts:
        examples = torch.full((self.classes,), len(targets))
        return Counts(torch.zeros_like(examples), examples)


CLASSES = Classification(0, (MEASURES["accuracy"],), "cross-entropy")
"""Plain classification with cross-entropy, whatever the number of classes."""


def kl(anchor: Tensor, logits: Tensor, tau: float) -> Tensor:
    """Return `KL(softmax(anchor / tau) || softmax(logits / tau))`, mean over the rows; 0 without rows."""
    if not len(logits):
        return logits.sum()
    target = F.log_softmax(anchor / tau, dim=1)
    return F.kl_div(F.log_softmax(logits / tau, dim=1), target, reduction="batchmean", log_target=True)


def _counted(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return one row per target that counts; the class axis of `outputs` is the last."""
    rows, flat = outputs.flatten(0, -2), targets.flatten()
    counted = flat != IGNORED
    return (rows, flat) if bool(counted.all()) else (rows[counted], flat[counted])


def _focal(rows: Tensor, targets: Tensor, weights: Tensor | None, reduction: str) -> Tensor:
    """Return the focal loss `-(1 - p)^2 log p` of the true class (Lin et al. 2017, gamma = 2)."""
    log_p = F.log_softmax(rows, dim=1).gather(1, targets[:, None])[:, 0]
    losses = -((1 - log_p.exp()) ** 2) * log_p
    if weights is None:
        return losses.mean() if reduction == "mean" else losses.sum()
    factors = weights[targets]
    return (factors * losses).sum() / factors.sum()
