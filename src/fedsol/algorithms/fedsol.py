"""FedSOL: the local gradient at weights perturbed along the proximal gradient."""

from dataclasses import dataclass
from typing import Literal

from fedsol.algorithms.proximal import KL, L2, NotTrueKL, Proximal
from fedsol.algorithms.proximal_base import ProximalAlgorithm, Usage
from fedsol.algorithms.task import Task, Where
from fedsol.config.fields import NonNegative, Positive, setting
from fedsol.core.messages import State

ProximalName = Literal["kl", "l2", "not-true-kl"]
"""The proximal losses that need no state."""


@dataclass(frozen=True)
class FedSOL(ProximalAlgorithm):
    """Local gradient taken at weights perturbed along the proximal gradient, so that the two stay orthogonal.

    Lee et al., "FedSOL: Stabilized Orthogonal Learning with Proximal Restrictions in Federated Learning", CVPR 2024,
    equations 5 to 8 and algorithm 1. With `rho = 0` it is FedAvg exactly. The other usages are the paper's table 1.
    """

    usage: Usage = setting("perturbed", "`perturbed` is FedSOL; the others add the proximal loss or project it out")
    perturb: Where = setting("head", "what is perturbed: all weights, all but the classifier, or the classifier alone")
    proximal: ProximalName = setting("kl", "the proximal loss")
    tau: Positive = setting(3.0, "temperature of the divergences")
    beta: NonNegative = setting(1.0, "auxiliary: factor of the proximal loss")

    def proximal_loss(self, task: Task, state: State) -> Proximal:
        return proximal_by_name(self.proximal, self.tau)

    @property
    def coefficient(self) -> float:
        return self.beta


def proximal_by_name(name: ProximalName, tau: float) -> Proximal:
    """Return the loss of that name."""
    if name == "l2":
        return L2()
    return KL(tau) if name == "kl" else NotTrueKL(tau)
