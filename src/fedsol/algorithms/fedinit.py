"""FedInit: local training starts away from where it ended the last time."""

from dataclasses import dataclass

from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.task import Task
from fedsol.config.fields import NonNegative, setting
from fedsol.core.messages import State
from fedsol.core.weights import Weights, add, clone, prefixed, subtract, without_prefix

LAST = "last-trained"


@dataclass(frozen=True)
class FedInit(Algorithm):
    """Starts local training at `a + beta (a - w_last)`, where `w_last` is what the client trained last.

    Sun, Shen and Tao, "Understanding How Consistency Works in Federated Learning via Stage-wise Relaxed
    Initialization", NeurIPS 2023. A client that never trained has the initial weights. With `beta = 0` it
    is FedAvg.
    """

    beta: NonNegative = setting(0.1, "how far beyond the anchor training starts")

    def init_client(self, parameters: Weights, buffers: Weights) -> State:
        return prefixed(LAST, parameters)

    def start(self, task: Task, state: State) -> Weights:
        return add(task.anchor, subtract(task.anchor, without_prefix(LAST, state)), self.beta)

    def finish(self, task: Task, weights: Weights, steps: int, state: State) -> tuple[State, State]:
        return prefixed(LAST, clone(weights)), {}
