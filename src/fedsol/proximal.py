"""Proximal losses: how far a client's model has moved from its anchor. How one is used: see gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch.nn.functional as F
from torch import Tensor

from fedsol.weights import Weights, pick, subtract

if TYPE_CHECKING:
    from fedsol.task import Outputs, Point, Where


class Proximal(ABC):
    """A loss whose gradient can be had at a point, for all of the weights or a part of them."""

    zero_at_anchor: ClassVar[bool] = False
    """Whether its gradient vanishes where weights equal the anchor (in exact arithmetic; float32 leaves noise)."""

    @abstractmethod
    def gradient(self, point: Point, where: Where, keep: bool = False) -> Weights:
        """Gradient with respect to the named part; `keep` leaves the pass usable for another gradient."""


class OutputLoss(Proximal):
    """A proximal loss that looks at the model's outputs: its gradient takes a backward pass."""

    @abstractmethod
    def loss(self, outputs: Outputs, point: Point) -> Tensor:
        """The loss of the outputs on the point's batch."""

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
    """`KL(softmax(z_a / tau) || softmax(z_w / tau))`, mean over the batch (FedSOL's proximal loss)."""

    zero_at_anchor = True

    tau: float = 3.0

    def loss(self, outputs: Outputs, point: Point) -> Tensor:
        anchor = F.log_softmax(point.anchor_outputs.logits / self.tau, dim=1)
        return F.kl_div(F.log_softmax(outputs.logits / self.tau, dim=1), anchor, reduction="batchmean", log_target=True)
