"""The objectives A0 to A6 that FedSOL's appendix compares."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedsol.algorithms import gradients
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.fedsol import ProximalName, proximal_by_name
from fedsol.algorithms.gradients import DEFAULT_STRENGTH, Perturbation, Strength
from fedsol.algorithms.proximal import Proximal
from fedsol.algorithms.proximal_base import PERTURBATION
from fedsol.algorithms.task import Point, Task, Where
from fedsol.config.fields import NonNegative, Positive, setting
from fedsol.core.messages import State
from fedsol.core.weights import Weights, add, pick, zeros
from fedsol.data.batches import Batch

Strategy = Literal["A0", "A1", "A2", "A3", "A4", "A5", "A6"]


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

    @property
    def perturbation(self) -> Perturbation | None:
        return None if self.strategy in ("A0", "A5") else Perturbation(self.rho, self.strength, self.perturb)

    def settings_without_effect(self) -> frozenset[str]:
        return frozenset() if self.perturbation else PERTURBATION

    def gradient(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor]:
        """Return the gradient of one objective, and the local loss.

        A0 `L(w)`; A1 `L(w + e_p)`; A2 `L(w) + b P(w + e_p)`; A3 `L(w + e_p) + b P(w + e_p)`; A4 `L(w + e_c) + b P(w +
        e_c)` with `e_c` along `g_l + g_p`; A5 `L(w) + P(w)`; A6 `L(w + e_p) + b P(w)`.
        """
        proximal = proximal_by_name(self.proximal, self.tau)
        how = Perturbation(self.rho, self.strength, self.perturb)
        if self.strategy == "A0":
            return gradients.plain(task, weights, batch)
        if self.strategy == "A5":
            return gradients.auxiliary(task, weights, batch, proximal, 1.0)
        if self.strategy == "A1":
            return gradients.perturbed(task, weights, batch, proximal, how)
        here = task.at(weights, batch)
        if self.strategy == "A4":
            direction = add(here.gradient(where=how.where, keep=True)[0], _direction(here, proximal, how.where))
        else:
            direction = _direction(here, proximal, how.where)
        there = here.moved(how.step(direction, weights, task.anchor))
        if self.strategy in ("A3", "A4"):
            return gradients.sum_at(there, proximal, self.beta)
        local_at, proximal_at = (here, there) if self.strategy == "A2" else (there, here)
        local, loss = local_at.gradient(keep=True)
        return add(local, proximal.gradient(proximal_at, "all"), self.beta), loss


def _direction(here: Point, proximal: Proximal, where: Where) -> Weights:
    """Return `g_p` at a point whose pass is used again; exactly 0 where the loss's gradient is noise around 0."""
    if proximal.vanishes_at(here):
        return zeros(pick(here.weights, here.task.names(where)))
    return proximal.gradient(here, where, keep=True)
