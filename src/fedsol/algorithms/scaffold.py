"""SCAFFOLD: local gradients corrected by control variates."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fedsol.algorithms import controls
from fedsol.algorithms.proximal import Linear, Proximal
from fedsol.algorithms.proximal_base import ProximalAlgorithm
from fedsol.algorithms.task import Task
from fedsol.config.fields import setting
from fedsol.core.messages import ServerState, State, Update
from fedsol.core.weights import Weights

StepCount = Literal["momentum-corrected", "plain"]


@dataclass(frozen=True)
class Scaffold(ProximalAlgorithm):
    """Corrects each local gradient by the difference of the global and the client's own control variate.

    Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, algorithm 1 with
    option II. With momentum, the number of steps in the new control variate is the momentum-corrected one. In its first
    round, when all control variates are 0, it is FedAvg.
    """

    needs_sgd = True
    numbers_of_steps = (controls.FACTOR,)

    steps: StepCount = setting("momentum-corrected", "how local steps are counted; `plain` ignores momentum")

    def init_server(self, parameters: Weights) -> State:
        return controls.initial(controls.GLOBAL, parameters)

    def init_client(self, parameters: Weights, buffers: Weights) -> State:
        return controls.initial(controls.OWN, parameters)

    def begin(self, task: Task, broadcast: State, state: State) -> State:
        return controls.with_correction(broadcast, state)

    def proximal_loss(self, task: Task, state: State) -> Proximal:
        return Linear(controls.correction(state))

    def finish(self, task: Task, weights: Weights, steps: int, state: State) -> tuple[State, State]:
        effective = float(steps) if self.steps == "plain" else controls.momentum_steps(steps, task.momentum)
        return controls.renewed(task, weights, effective, state, self.usage)

    def aggregate(self, server: ServerState, updates: Sequence[Update]) -> ServerState:
        averaged = super().aggregate(server, updates)
        return replace(averaged, state=controls.server_control(server, updates))
