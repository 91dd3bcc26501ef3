"""FedNova: updates normalized by the number of steps behind them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fedsol.algorithms import controls
from fedsol.algorithms.proximal import Linear, Proximal
from fedsol.algorithms.proximal_base import ProximalAlgorithm
from fedsol.algorithms.task import Task
from fedsol.config.fields import setting
from fedsol.core.messages import ServerState, State, Update
from fedsol.core.weights import Weights

STEPS = "effective-steps"


@dataclass(frozen=True)
class FedNova(ProximalAlgorithm):
    """Averages the clients' changes per (momentum-corrected) step, so that more steps do not mean more weight.

    Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS 2020,
    equation 7 with the momentum of section 4.1; control variates as in its section 5. If all clients take the same
    number of steps, it is FedAvg (up to rounding).
    """

    needs_sgd = True
    numbers_of_steps = (STEPS, controls.FACTOR)

    control: bool = setting(False, "also correct local gradients with control variates, as SCAFFOLD does")

    def __post_init__(self) -> None:
        if self.usage != "auxiliary" and not self.control:
            raise ValueError(
                f"usage: {self.usage!r} is not allowed with control = false: FedNova's proximal gradient is its "
                "control variate; set control = true"
            )

    def init_server(self, parameters: Weights) -> State:
        return controls.initial(controls.GLOBAL, parameters) if self.control else {}

    def init_client(self, parameters: Weights, buffers: Weights) -> State:
        return controls.initial(controls.OWN, parameters) if self.control else {}

    def begin(self, task: Task, broadcast: State, state: State) -> State:
        return controls.with_correction(broadcast, state) if self.control else {}

    def proximal_loss(self, task: Task, state: State) -> Proximal | None:
        return Linear(controls.correction(state)) if self.control else None

    def finish(self, task: Task, weights: Weights, steps: int, state: State) -> tuple[State, State]:
        effective = controls.momentum_steps(steps, task.momentum)
        payload = {STEPS: torch.tensor(effective, dtype=torch.float64)}
        if not self.control:
            return {}, payload
        own, change = controls.renewed(task, weights, effective, state, self.usage)
        return own, {**payload, **change}

    def aggregate(self, server: ServerState, updates: Sequence[Update]) -> ServerState:
        """`w <- a - (sum_i p_i a_i) sum_i p_i (a - w_i) / a_i`; buffers are averaged by the shares."""
        averaged = super().aggregate(server, updates)
        effective = [float(update.payload[STEPS]) for update in updates]
        total = sum(update.share * steps for update, steps in zip(updates, effective, strict=True))
        factors = [update.share * total / steps for update, steps in zip(updates, effective, strict=True)]
        weights = dict(averaged.weights)
        for name in server.parameters:
            moved = server.weights[name].clone()
            for update, factor in zip(updates, factors, strict=True):
                moved.add_(update.weights[name] - server.weights[name], alpha=factor)
            weights[name] = moved
        state = controls.server_control(server, updates) if self.control else server.state
        return replace(averaged, weights=weights, state=state)
