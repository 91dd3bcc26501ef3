"""Recorder: any algorithm, with every local step shown to an observer that cannot change it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from fedsol.algorithms.base import Algorithm
from fedsol.core.messages import ServerState, State, Update
from fedsol.core.randomness import random_state, set_random_state
from fedsol.core.weights import Weights, clone

if TYPE_CHECKING:
    from fedsol.algorithms.task import Task
    from fedsol.data.batches import Batch


@dataclass(frozen=True)
class Step:
    """One local step as it is about to be taken."""

    task: Task
    """With running statistics of its own: passes of an observer leave no trace."""
    weights: Weights
    batch: Batch
    update: Weights
    """`g_u`, the gradient that the optimiser gets."""
    loss: Tensor


@dataclass(frozen=True)
class Recorder(Algorithm):
    """Does what `inner` does; its training gives bitwise the same weights with and without the observer."""

    inner: Algorithm
    observe: Callable[[Step], None]

    def __post_init__(self) -> None:
        # What a method says of itself as a class (which weights it trains, how many batches a step takes) is its own.
        for name in ("needs_sgd", "trains", "batches_per_step"):
            object.__setattr__(self, name, getattr(self.inner, name))

    def gradient(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor]:
        update, loss = self.inner.gradient(task, weights, batch, state)
        device = batch.inputs.device
        draws = random_state(device)
        self.observe(Step(replace(task, buffers=clone(task.buffers)), weights, batch, update, loss))
        set_random_state(device, draws)
        return update, loss

    def init_server(self, parameters: Weights) -> State:
        return self.inner.init_server(parameters)

    def init_client(self, parameters: Weights, buffers: Weights) -> State:
        return self.inner.init_client(parameters, buffers)

    def broadcast(self, server: ServerState) -> State:
        return self.inner.broadcast(server)

    def learning_rate(self, lr: float) -> float:
        return self.inner.learning_rate(lr)

    def begin(self, task: Task, broadcast: State, state: State) -> State:
        return self.inner.begin(task, broadcast, state)

    def finish(self, task: Task, weights: Weights, steps: int, state: State) -> tuple[State, State]:
        return self.inner.finish(task, weights, steps, state)

    def aggregate(self, server: ServerState, updates: Sequence[Update]) -> ServerState:
        return self.inner.aggregate(server, updates)
