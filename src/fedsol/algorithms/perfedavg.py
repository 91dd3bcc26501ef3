"""PerFedAvg: a global model that is good after one local step."""

from dataclasses import dataclass, replace

from torch import Tensor

from fedsol.algorithms import gradients
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.task import Task
from fedsol.config.fields import Positive, setting
from fedsol.core.messages import State
from fedsol.core.weights import Weights, add, clone
from fedsol.data.batches import Batch


@dataclass(frozen=True)
class PerFedAvg(Algorithm):
    """Local gradient taken after a step on another batch: the global model learns to be fine-tuned.

    Fallah et al., "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
    Approach", NeurIPS 2020, algorithm 1, first-order: `u = w - lr g(w; D)`, then `w - outer_lr g(u; D')` with
    the learning rate of the round and two batches of an epoch; the last batch of an odd number serves as both.
    """

    batches_per_step = 2

    outer_lr: Positive = setting(0.01, "step that is applied; the one before it has the learning rate of the round")

    def learning_rate(self, lr: float) -> float:
        return self.outer_lr

    def gradient(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor]:
        inner, loss = gradients.plain(task, weights, batch)
        after = add(weights, inner, -task.lr)
        second = batch.further[0] if batch.further else batch
        # Running statistics follow the passes at the weights themselves: the second pass has its own copies.
        aside = replace(task, buffers=clone(task.buffers))
        return gradients.plain(aside, after, second)[0], loss

    def fine_tuning(self) -> Algorithm:
        return self
