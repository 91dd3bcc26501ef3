"""FedLC and FedRS: a local loss whose logits are calibrated by the client's label counts."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.task import Outputs, Point, Task
from fedsol.config.fields import NonNegative, Share, setting
from fedsol.core.messages import State
from fedsol.core.weights import Weights
from fedsol.data.batches import Batch

SMALLEST_COUNT = 1e-8
"""What a class without samples counts for FedLC: its margin is then 100 tau."""


@dataclass(frozen=True)
class CalibratedAlgorithm(Algorithm):
    """Base: FedAvg with other logits in the local loss."""

    tasks = ("classification",)

    @abstractmethod
    def calibrated(self, logits: Tensor, counts: Tensor) -> Tensor:
        """Return the logits of the local loss, from the model's and the client's label counts."""

    def gradient(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor]:
        counts = task.label_counts

        def loss(outputs: Outputs, point: Point) -> Tensor:
            return task.objective.loss(self.calibrated(outputs.logits, counts), point.batch.labels)

        return task.at(weights, batch).gradient(loss)


@dataclass(frozen=True)
class FedLC(CalibratedAlgorithm):
    """Lowers each logit by `tau n_c^(-1/4)`, with the number `n_c` of the client's samples of that class.

    Zhang et al., "Federated Learning with Label Distribution Skew via Logits Calibration", ICML 2022. With
    `tau = 0` it is FedAvg.
    """

    tau: NonNegative = setting(1.0, "size of the margins")

    def calibrated(self, logits: Tensor, counts: Tensor) -> Tensor:
        return logits - self.tau * counts.clamp_min(SMALLEST_COUNT) ** -0.25


@dataclass(frozen=True)
class FedRS(CalibratedAlgorithm):
    """Multiplies the logits of classes that the client lacks by `alpha`.

    Li and Zhan, "FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data", KDD 2021,
    equation 8. With `alpha = 1` it is FedAvg.
    """

    alpha: Share = setting(0.5, "factor of the logits of missing classes")

    def calibrated(self, logits: Tensor, counts: Tensor) -> Tensor:
        return logits * torch.where(counts > 0, 1.0, self.alpha).to(logits)
