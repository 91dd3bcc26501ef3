"""FedCM: every local step follows the mean gradient of the last round."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedsol.algorithms import controls
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.controls import MOMENTUM
from fedsol.algorithms.task import Point, Task
from fedsol.config.fields import PositiveShare, setting
from fedsol.core.messages import ServerState, State, Update
from fedsol.core.weights import Weights, add, scale, without_prefix


@dataclass(frozen=True)
class FedCM(Algorithm):
    """Mixes each local gradient with the mean gradient that the clients of the last round applied.

    Xu et al., "FedCM: Federated Learning with Client-level Momentum", 2021. With momentum on the client,
    the number of steps in the mean gradient is the momentum-corrected one. With `alpha = 1` it is FedAvg.
    """

    needs_sgd = True
    numbers_of_steps = (controls.FACTOR,)

    alpha: PositiveShare = setting(0.1, "share of the local gradient; the rest is the last round's mean gradient")

    def init_server(self, parameters: Weights) -> State:
        return controls.initial(MOMENTUM, parameters)

    def corrected(self, local: Weights, point: Point, state: State) -> Weights:
        return add(scale(local, self.alpha), without_prefix(MOMENTUM, state), 1 - self.alpha)

    def finish(self, task: Task, weights: Weights, steps: int, state: State) -> tuple[State, State]:
        return {}, controls.factor_of(task, controls.momentum_steps(steps, task.momentum))

    def aggregate(self, server: ServerState, updates: Sequence[Update]) -> ServerState:
        return replace(super().aggregate(server, updates), state=controls.mean_applied(server, updates))
