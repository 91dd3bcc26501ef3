"""FedDecorr: features that are not correlated."""

from dataclasses import dataclass

from torch import Tensor

from fedsol.algorithms import gradients
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.proximal import OutputLoss
from fedsol.algorithms.task import Outputs, Point, Task
from fedsol.config.fields import NonNegative, setting
from fedsol.config.task import SAMPLE_KINDS
from fedsol.core.messages import State
from fedsol.core.weights import Weights
from fedsol.data.batches import Batch

SMALLEST_VARIANCE = 1e-8


class Decorrelation(OutputLoss):
    """`||K||_F^2 / d^2` with the correlations K of the d features that enter the head, over the batch."""

    def loss(self, outputs: Outputs, point: Point) -> Tensor:
        centered = outputs.vectors - outputs.vectors.mean(dim=0)
        standard = centered / (centered.square().mean(dim=0) + SMALLEST_VARIANCE).sqrt()
        correlations = standard.T @ standard / len(standard)
        return correlations.square().mean()


@dataclass(frozen=True)
class FedDecorr(Algorithm):
    """Adds the mean squared correlation of the features to the local loss, times `beta`.

    Shi et al., "Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated Learning", ICLR
    2023. With `beta = 0` it is FedAvg.
    """

    tasks = SAMPLE_KINDS

    beta: NonNegative = setting(0.1, "factor of the mean squared correlation")

    def gradient(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor]:
        return gradients.auxiliary(task, weights, batch, Decorrelation(), self.beta)
