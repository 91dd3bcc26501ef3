"""The objectives A0 to A6 that FedSOL's appendix compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from fedsol.algorithms import gradients
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.fedsol import ProximalName, proximal_by_name
from fedsol.algorithms.gradients import DEFAULT_STRENGTH, Strategy, Strength
from fedsol.algorithms.proximal_base import PERTURBATION
from fedsol.algorithms.task import Where
from fedsol.config.fields import NonNegative, Positive, setting
from fedsol.core.messages import State
from fedsol.core.weights import Weights

if TYPE_CHECKING:
    from fedsol.algorithms.task import Task
    from fedsol.data.batches import Batch

UNPERTURBED = ("A0", "A5")


@dataclass(frozen=True)
class FedSOLAblation(Algorithm):
    """The objectives A0 to A6 of FedSOL's ablation: where the local and where the proximal loss is taken.

    Lee et al., CVPR 2024, appendix "Other Perturbation Strategies", by the formulas of its table. A0 is FedAvg, A1 is
    FedSOL, A5 the plain proximal restriction.
    """

    strategy: Strategy = setting("A1", "the row of the paper's table")
    beta: NonNegative = setting(1.0, "factor of the proximal loss in A2, A3, A4 and A6")
    rho: NonNegative = setting(2.0, "strength of the perturbation")
    strength: Strength = setting(
        DEFAULT_STRENGTH, "Lambda: 1 (fixed), or |w - a| over its norm per tensor or per column"
    )
    perturb: Where = setting("head", "what is perturbed")
    proximal: ProximalName = setting("kl", "the proximal loss")
    tau: Positive = setting(3.0, "temperature of the divergences")

    def settings_without_effect(self) -> frozenset[str]:
        return PERTURBATION if self.strategy in UNPERTURBED else frozenset()

    def check_frozen_head(self) -> None:
        if self.strategy not in UNPERTURBED:
            gradients.check_frozen_head(self.strength, self.perturb)

    def gradient(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor]:
        proximal = proximal_by_name(self.proximal, self.tau)
        return gradients.ablation(
            task, weights, batch, proximal, self.strategy, self.beta, self.rho, self.strength, self.perturb
        )
