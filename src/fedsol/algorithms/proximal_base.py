"""ProximalAlgorithm: a method that is a proximal loss, used in one of three ways."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedsol.algorithms import gradients
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.gradients import DEFAULT_STRENGTH, Perturbation, Strength
from fedsol.algorithms.proximal import Proximal
from fedsol.algorithms.task import Point, Task, Where
from fedsol.config.fields import NonNegative, setting
from fedsol.core.messages import State
from fedsol.core.weights import Weights, add
from fedsol.data.batches import Batch

Usage = Literal["auxiliary", "projected", "perturbed"]
PERTURBATION = frozenset({"rho", "strength", "perturb"})
"""The settings of a perturbation."""


@dataclass(frozen=True)
class ProximalAlgorithm(Algorithm):
    """Base of the proximal methods: the usage of the loss, and the settings of a perturbation.

    `auxiliary` adds the loss to the local one (the methods as their papers have them), `projected` takes its component
    out of the local gradient (FedSOL's table 1), `perturbed` is FedSOL with this loss (its table of combinations).
    """

    usage: Usage = setting(
        "auxiliary",
        "use of the proximal loss: added, projected out, or perturbing the weights",
    )
    rho: NonNegative = setting(2.0, "perturbed: strength of the perturbation")
    strength: Strength = setting(
        DEFAULT_STRENGTH, "perturbed: Lambda is 1 (fixed), or |w - a| over its norm per tensor or per column"
    )
    perturb: Where = setting("all", "perturbed: all weights, all but the classifier, or the classifier alone")

    def proximal_loss(self, task: Task, state: State) -> Proximal | None:
        """Return the loss; None if these settings have none."""
        raise NotImplementedError

    @property
    def coefficient(self) -> float:
        """Factor of the loss when it is auxiliary (the paper's beta)."""
        return 1.0

    @property
    def perturbation(self) -> Perturbation | None:
        return Perturbation(self.rho, self.strength, self.perturb) if self.usage == "perturbed" else None

    def settings_without_effect(self) -> frozenset[str]:
        return frozenset() if self.perturbation else PERTURBATION

    def gradient(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor]:
        proximal, how = self.proximal_loss(task, state), self.perturbation
        if proximal is None:
            return gradients.plain(task, weights, batch)
        if how is not None:
            return gradients.perturbed(task, weights, batch, proximal, how)
        if self.usage == "projected":
            return gradients.projected(task, weights, batch, proximal)
        return gradients.auxiliary(task, weights, batch, proximal, self.coefficient)

    def corrected(self, local: Weights, point: Point, state: State) -> Weights:
        proximal = self.proximal_loss(point.task, state)
        return add(local, proximal.gradient(point, "all"), self.coefficient) if proximal else local
