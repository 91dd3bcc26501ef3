"""FedSOL: the local gradient at weights perturbed along the proximal gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from fedsol import gradients
from fedsol.algorithms.base import Algorithm
from fedsol.fields import NonNegative, Positive, setting
from fedsol.gradients import Strength
from fedsol.messages import State
from fedsol.proximal import KL, L2, Proximal
from fedsol.task import Where
from fedsol.weights import Weights

if TYPE_CHECKING:
    from fedsol.data.batches import Batch
    from fedsol.task import Task


@dataclass(frozen=True)
class FedSOL(Algorithm):
    """Local gradient taken at weights perturbed along the proximal gradient, so that the two stay orthogonal.

    Lee et al., "FedSOL: Stabilized Orthogonal Learning with Proximal Restrictions in Federated Learning", CVPR 2024,
    equations 5 to 8 and algorithm 1. With `rho = 0` it is FedAvg exactly.
    """

    rho: NonNegative = setting(2.0, "strength of the perturbation")
    perturb: Where = setting("head", "what is perturbed: all weights, all but the classifier, or the classifier alone")
    strength: Strength = setting(
        "adaptive",
        "fixed: Lambda is 1; adaptive: |w - a| over its norm per tensor; adaptive-column: per column",
    )
    proximal: Literal["kl", "l2"] = setting("kl", "the proximal loss")
    tau: Positive = setting(3.0, "temperature of the KL divergence")

    def gradient(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor]:
        proximal: Proximal = KL(self.tau) if self.proximal == "kl" else L2()
        return gradients.perturbed(task, weights, batch, proximal, self.rho, self.strength, self.perturb)
