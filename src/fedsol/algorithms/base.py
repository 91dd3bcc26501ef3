"""Algorithm: how a batch becomes a gradient, and updates become new global weights. Every default is FedAvg's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from torch import Tensor

from fedsol.algorithms.gradients import Perturbation
from fedsol.algorithms.task import Point, Task, Where
from fedsol.config.task import KINDS, TaskKind
from fedsol.core.messages import ServerState, State, Update
from fedsol.core.weights import Weights, mean
from fedsol.data.batches import Batch


@dataclass(frozen=True)
class Algorithm:
    """A frozen value: its fields are settings; whatever changes travels in states, jobs and updates."""

    needs_sgd: ClassVar[bool] = False
    """Whether the method's formulas hold only for SGD with momentum."""
    trains: ClassVar[Literal["all", "body"]] = "all"
    """What local training changes: every weight, or all but the classifier."""
    compares_updates: ClassVar[bool] = False
    """Whether the server needs the updates one by one, and not only their mean."""
    batches_per_step: ClassVar[int] = 1
    """How many batches a step takes: those after the first are the batch's `further`, fewer at an epoch's end."""

    tasks: ClassVar[tuple[TaskKind, ...]] = KINDS
    """The kinds of tasks that the method fits."""

    numbers_of_steps: ClassVar[tuple[str, ...]] = ()
    """Names of numbers in the payload that follow from the number of steps alone, so that a lie about them shows."""

    @property
    def exchange(self) -> str:
        """What clients and server exchange, in the words of `[server] exchange`; the rest stays with each client."""
        return "all"

    @property
    def perturbation(self) -> Perturbation | None:
        """How the method perturbs weights along a direction that it states; by default not at all."""
        return None

    def averages_plainly(self) -> bool:
        """Return whether the server only averages the weights."""
        return type(self).aggregate is Algorithm.aggregate

    def init_server(self, parameters: Weights) -> State:
        """Return the server's own state before the first round, from the initial global parameters."""
        return {}

    def init_client(self, parameters: Weights, buffers: Weights) -> State:
        """Return a client's own state before its first job, from the initial global parameters and buffers."""
        return {}

    def broadcast(self, server: ServerState) -> State:
        """Return what every client of a round receives besides the weights."""
        return server.state

    def sent(self, server: ServerState) -> Weights:
        """Return the weights that the clients of a round receive: here those that are evaluated."""
        return server.weights

    def learning_rate(self, lr: float) -> float:
        """Return the step of the local optimizer, from the learning rate of the round (which stays `task.lr`)."""
        return lr

    def part(self, step: int, steps: int) -> Where:
        """Return which part of the model the local step with this number (from 0), of `steps`, trains."""
        return "all"

    def settings_without_effect(self) -> frozenset[str]:
        """Return the names of settings that cannot change a result, given the others."""
        return frozenset()

    def begin(self, task: Task, broadcast: State, state: State) -> State:
        """Return what `gradient` and `finish` see as `state`; called once at the start of a client's job."""
        return {**broadcast, **state}

    def start(self, task: Task, state: State) -> Weights:
        """Return the weights from which local training starts."""
        return task.anchor

    def gradient(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor]:
        """Return the gradient that the local optimizer applies to `weights`, and the local loss. Pure."""
        here = task.at(weights, batch)
        local, loss = here.gradient()
        return self.corrected(local, here, state), loss

    def corrected(self, local: Weights, point: Point, state: State) -> Weights:
        """Return the gradient to apply at `point`, from the local one: here itself."""
        return local

    def step(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor, State]:
        """Return the same as `gradient`, and what the next step sees as `state`. Pure."""
        return *self.gradient(task, weights, batch, state), state

    def finish(self, task: Task, weights: Weights, steps: int, state: State) -> tuple[State, State]:
        """Return the client's new state and the payload it sends besides `weights`, the trained ones."""
        return {}, {}

    def upload(self, task: Task, weights: Weights, state: State) -> Weights:
        """Return the weights that the client sends, from the trained ones."""
        return weights

    def aggregate(self, server: ServerState, updates: Sequence[Update]) -> ServerState:
        """Return the server after a round: here the mean of the updates by their shares (paper, equation 1)."""
        averaged = mean([update.weights for update in updates], [update.share for update in updates])
        return replace(server, weights=averaged)

    def fine_tuning(self) -> Algorithm:
        """Return the method by which a client fine-tunes the final global model: here plain steps of all weights."""
        return Algorithm()

    def personal_settings(self) -> dict[str, Any]:
        """Return how `fedsol personalize` treats a run by default; with `method` "local-only" it has no rounds."""
        return {}
