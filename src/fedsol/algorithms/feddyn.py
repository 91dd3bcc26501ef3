"""FedDyn: a regularizer that makes the clients' optima agree with the server's."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedsol.algorithms import controls
from fedsol.algorithms.proximal import Dynamic, Proximal
from fedsol.algorithms.proximal_base import ProximalAlgorithm
from fedsol.algorithms.task import Task
from fedsol.config.fields import Positive, setting
from fedsol.core.messages import ServerState, State, Update
from fedsol.core.weights import Weights, add, pick, prefixed, scale, subtract, without_prefix

HISTORY = "history"


@dataclass(frozen=True)
class FedDyn(ProximalAlgorithm):
    """Adds `-<h_i, w> + alpha / 2 ||w - a||^2` to the local loss, with a history `h` on each client and the server.

    Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, algorithm 1. The server's average is
    weighted as for every method.
    """

    alpha: Positive = setting(0.1, "strength of the regularizer")

    def init_server(self, parameters: Weights) -> State:
        return controls.initial(HISTORY, parameters)

    def init_client(self, parameters: Weights, buffers: Weights) -> State:
        return controls.initial(HISTORY, parameters)

    def broadcast(self, server: ServerState) -> State:
        return {}

    def proximal_loss(self, task: Task, state: State) -> Proximal:
        return Dynamic(without_prefix(HISTORY, state), self.alpha)

    def finish(self, task: Task, weights: Weights, steps: int, state: State) -> tuple[State, State]:
        """`h_i <- h_i - alpha (w - a)`."""
        moved = subtract(weights, task.anchor)
        return prefixed(HISTORY, add(without_prefix(HISTORY, state), moved, -self.alpha)), {}

    def aggregate(self, server: ServerState, updates: Sequence[Update]) -> ServerState:
        """`h <- h - alpha / N sum_S (w_i - a)`, then `w <- mean - h / alpha`."""
        anchor = pick(server.weights, server.parameters)
        history = without_prefix(HISTORY, server.state)
        for update in updates:
            history = add(history, subtract(anchor, update.weights), self.alpha / server.clients)
        averaged = super().aggregate(server, updates)
        corrected = add(averaged.weights, scale(history, 1 / self.alpha), -1.0)
        return replace(averaged, weights=corrected, state=prefixed(HISTORY, history))
