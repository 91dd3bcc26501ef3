"""FedSAM and FedASAM: sharpness-aware local steps."""

from dataclasses import dataclass

from torch import Tensor

from fedsol.algorithms import gradients
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.task import Task
from fedsol.config.fields import NonNegative, setting
from fedsol.core.messages import State
from fedsol.core.weights import Weights
from fedsol.data.batches import Batch


@dataclass(frozen=True)
class FedSAM(Algorithm):
    """Local gradient at the worst weights within a distance `rho` (SAM on the clients).

    Qu et al., "Generalized Federated Learning via Sharpness Aware Minimization", ICML 2022, algorithm 1; SAM: Foret et
    al., ICLR 2021, equation 2. With `rho = 0` it is FedAvg.
    """

    rho: NonNegative = setting(0.1, "length of the perturbation")

    def gradient(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor]:
        return gradients.sharpness_aware(task, weights, batch, self.rho)


@dataclass(frozen=True)
class FedASAM(Algorithm):
    """Local gradient at the worst weights within a distance that scales with each weight (ASAM on the clients).

    Caldarola et al., "Improving Generalization in Federated Learning by Seeking Flat Minima", ECCV 2022; ASAM: Kwon et
    al., ICML 2021, equation 9. With `rho = 0` it is FedAvg.
    """

    rho: NonNegative = setting(1.0, "length of the perturbation, relative to the weights")

    def gradient(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor]:
        return gradients.adaptive_sharpness_aware(task, weights, batch, self.rho)
