"""FedProx: the squared distance to the anchor, added to the local loss."""

from dataclasses import dataclass

from fedsol.algorithms.proximal import L2, Proximal
from fedsol.algorithms.proximal_base import ProximalAlgorithm
from fedsol.algorithms.task import Task
from fedsol.config.fields import NonNegative, setting
from fedsol.core.messages import State


@dataclass(frozen=True)
class FedProx(ProximalAlgorithm):
    """Adds `mu / 2 ||w - a||^2` to the local loss.

    Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, equation 2. With `mu = 0` it is FedAvg.
    """

    mu: NonNegative = setting(1.0, "auxiliary: factor of the squared distance")

    def proximal_loss(self, task: Task, state: State) -> Proximal:
        return L2()

    @property
    def coefficient(self) -> float:
        return self.mu
