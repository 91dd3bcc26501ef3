"""Proximal losses: how far a client's model has moved from its anchor. How one is used: see gradients."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsol.algorithms.task import Outputs, Point, Where
from fedsol.core.weights import Weights, add, equal, pick, scale, subtract, zeros
from fedsol.objectives.base import kl


class Proximal(ABC):
    """A loss with a gradient at a point, for all weights or a part of them."""

    zero_at_anchor: ClassVar[bool] = False
    """Whether its gradient vanishes where weights equal the anchor (in exact arithmetic; float32 leaves noise)."""

    def vanishes_at(self, point: Point) -> bool:
        """Return whether its gradient is 0 at a point: what float32 leaves of it is no direction."""
        return self.zero_at_anchor and equal(point.weights, point.task.anchor)

    @abstractmethod
    def gradient(self, point: Point, where: Where, keep: bool = False) -> Weights:
        """Return the gradient for a part of the weights; `keep` leaves the pass usable for another gradient."""


class OutputLoss(Proximal):
    """A proximal loss that looks at the model's outputs: its gradient takes a backward pass."""

    @abstractmethod
    def loss(self, outputs: Outputs, point: Point) -> Tensor:
        """Return the loss of the outputs on the point's batch."""

    def gradient(self, point: Point, where: Where, keep: bool = False) -> Weights:
        return point.gradient(self.loss, where, keep)[0]


@dataclass(frozen=True)
class L2(Proximal):
    """`1/2 ||w - a||^2`: its gradient `w - a` needs no pass through the model."""

    zero_at_anchor = True

    def gradient(self, point: Point, where: Where, keep: bool = False) -> Weights:
        return subtract(pick(point.weights, point.task.names(where)), point.task.anchor)


@dataclass(frozen=True)
class KL(OutputLoss):
    """`KL(softmax(z_a / tau) || softmax(z_w / tau))`, mean over the batch (FedSOL's proximal loss).

    Of a task without classes, what takes its place: see `Objective.divergence`.
    """

    zero_at_anchor = True

    tau: float = 3.0

    def loss(self, outputs: Outputs, point: Point) -> Tensor:
        objective, labels = point.task.objective, point.batch.labels
        return objective.divergence(point.anchor_outputs.logits, outputs.logits, labels, self.tau)


@dataclass(frozen=True)
class NotTrueKL(OutputLoss):
    """`tau^2 KL(q_a || q_w)`, where q is the softmax of `z / tau` over all classes but the true one (FedNTD)."""

    zero_at_anchor = True

    tau: float = 1.0

    def loss(self, outputs: Outputs, point: Point) -> Tensor:
        rows, targets = point.task.objective.rows, point.batch.labels
        anchor = without_true_class(*rows(point.anchor_outputs.logits, targets))
        return self.tau**2 * kl(anchor, without_true_class(*rows(outputs.logits, targets)), self.tau)


@dataclass(frozen=True)
class Contrastive(OutputLoss):
    """Draws the features to the anchor's and away from those of the client's previous model (MOON).

    `-log(e^(cos(z, z_a) / tau) / (e^(cos(z, z_a) / tau) + e^(cos(z, z_p) / tau)))`, mean over the batch, on the
    features that enter the head. It does not depend on the head at all.
    """

    previous: Weights
    """Parameters and buffers of the client's previous model."""
    tau: float = 0.5

    def gradient(self, point: Point, where: Where, keep: bool = False) -> Weights:
        """Return exactly 0 where the previous model is the anchor itself: the loss is then log 2 for all weights.

        That is the case in a client's first job of the first round. Float32 would leave noise, and a perturbation
        divides by its norm.
        """
        if equal(self.previous, {**point.task.anchor, **point.task.anchor_buffers}):
            return zeros(pick(point.weights, point.task.names(where)))
        return super().gradient(point, where, keep)

    def loss(self, outputs: Outputs, point: Point) -> Tensor:
        own, previous = outputs.vectors, point.constant_outputs("previous", self.previous).vectors
        to_anchor = F.cosine_similarity(own, point.anchor_outputs.vectors)
        to_previous = F.cosine_similarity(own, previous)
        similarities = torch.stack([to_anchor, to_previous], dim=1) / self.tau
        return -F.log_softmax(similarities, dim=1)[:, 0].mean()


@dataclass(frozen=True)
class Linear(Proximal):
    """`<d, w>` for a fixed direction: the control variates `d = c - c_i` of SCAFFOLD and FedNova."""

    direction: Weights

    def gradient(self, point: Point, where: Where, keep: bool = False) -> Weights:
        return pick(self.direction, point.task.names(where))


@dataclass(frozen=True)
class Dynamic(Proximal):
    """`-<h_i, w> + alpha / 2 ||w - a||^2`, FedDyn's regularizer."""

    history: Weights
    alpha: float

    def gradient(self, point: Point, where: Where, keep: bool = False) -> Weights:
        moved = L2().gradient(point, where)
        return add(scale(moved, self.alpha), self.history, -1.0)


def without_true_class(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the logits of every row except that of its label: one column fewer."""
    classes = logits.shape[1]
    others = torch.arange(classes - 1, device=logits.device)
    return logits.gather(1, others + (others >= labels[:, None]))
