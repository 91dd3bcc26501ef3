"""FedSpeed: sharpness-aware local steps with a proximal term whose bias is corrected."""

from dataclasses import dataclass

from torch import Tensor

from fedsol.algorithms import controls
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.feddyn import HISTORY
from fedsol.algorithms.gradients import Perturbation
from fedsol.algorithms.proximal import Dynamic
from fedsol.algorithms.task import Task
from fedsol.config.fields import NonNegative, Positive, Share, setting
from fedsol.core.messages import State
from fedsol.core.weights import Weights, add, prefixed, scale, subtract, without_prefix
from fedsol.data.batches import Batch


@dataclass(frozen=True)
class FedSpeed(Algorithm):
    """Adds `-h_i + (w - a) / lam` to a mix of the local gradient and the one at SAM's point.

    Sun et al., "FedSpeed: Larger Local Interval, Less Communication Round, and Higher Generalization Accuracy", ICLR
    2023. The client sends `w - lam h_i`, with the new `h_i`; the server only averages.
    """

    rho: NonNegative = setting(0.1, "length of the perturbation")
    alpha: Share = setting(1.0, "share of the gradient at SAM's point; the rest is the local gradient")
    lam: Positive = setting(10.0, "pull toward the anchor: the squared distance divided by 2 lam")

    def init_client(self, parameters: Weights, buffers: Weights) -> State:
        return controls.initial(HISTORY, parameters)

    def gradient(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor]:
        here = task.at(weights, batch)
        local, _ = here.gradient()
        there = here.moved(Perturbation(self.rho, "fixed").step(local, weights, task.anchor))
        perturbed, loss = there.gradient()
        mixed = add(scale(local, 1 - self.alpha), perturbed, self.alpha)
        return add(mixed, Dynamic(without_prefix(HISTORY, state), 1 / self.lam).gradient(here, "all")), loss

    def finish(self, task: Task, weights: Weights, steps: int, state: State) -> tuple[State, State]:
        return prefixed(HISTORY, self._renewed(task, weights, state)), {}

    def upload(self, task: Task, weights: Weights, state: State) -> Weights:
        return add(weights, self._renewed(task, weights, state), -self.lam)

    def _renewed(self, task: Task, weights: Weights, state: State) -> Weights:
        """Return `h_i - (w - a) / lam`."""
        return add(without_prefix(HISTORY, state), subtract(weights, task.anchor), -1 / self.lam)
