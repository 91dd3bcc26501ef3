"""FedNTD: preserve what the anchor predicts for the classes other than the true one."""

from dataclasses import dataclass

from fedsol.algorithms.proximal import NotTrueKL, Proximal
from fedsol.algorithms.proximal_base import ProximalAlgorithm
from fedsol.algorithms.task import Task
from fedsol.config.fields import NonNegative, Positive, setting
from fedsol.config.task import CLASS_KINDS
from fedsol.core.messages import State


@dataclass(frozen=True)
class FedNTD(ProximalAlgorithm):
    """Adds a distillation of the anchor over the not-true classes to the local loss.

    Lee et al., "Preservation of the Global Knowledge by Not-True Distillation in Federated Learning", NeurIPS 2022,
    equations 5 and 6. With `beta = 0` it is FedAvg.
    """

    tasks = CLASS_KINDS

    beta: NonNegative = setting(1.0, "auxiliary: factor of the distillation")
    tau: Positive = setting(1.0, "temperature of the distillation")

    def proximal_loss(self, task: Task, state: State) -> Proximal:
        return NotTrueKL(self.tau)

    @property
    def coefficient(self) -> float:
        return self.beta
