"""Algorithm: how a batch becomes a gradient, and updates become new global weights. Every default is FedAvg's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor

from fedsol.algorithms import gradients
from fedsol.core.messages import ServerState, State, Update
from fedsol.core.weights import Weights, mean

if TYPE_CHECKING:
    from fedsol.algorithms.gradients import Perturbation
    from fedsol.algorithms.task import Task
    from fedsol.data.batches import Batch


@dataclass(frozen=True)
class Algorithm:
    """A frozen value: its fields are settings, and all change travels in states, jobs and updates."""

    needs_sgd: ClassVar[bool] = False
    """Whether the method's own formulas hold for SGD with momentum only."""
    trains: ClassVar[Literal["all", "body"]] = "all"
    """What local training changes: every weight, or all but the classifier."""
    batches_per_step: ClassVar[int] = 1
    """How many batches a step takes: those after the first are the batch's `further`, fewer at an epoch's end."""

    @property
    def perturbation(self) -> Perturbation | None:
        """How the method perturbs weights along a proximal gradient; here not at all."""
        return None

    @classmethod
    def averages_plainly(cls) -> bool:
        """Whether the server's part is the average of the weights and nothing else."""
        return cls.aggregate is Algorithm.aggregate

    def init_server(self, parameters: Weights) -> State:
        """The server's own state before the first round, from the initial global parameters."""
        return {}

    def init_client(self, parameters: Weights, buffers: Weights) -> State:
        """A client's own state before its first job, from the initial global parameters and buffers."""
        return {}

    def broadcast(self, server: ServerState) -> State:
        """What every client of a round receives beside the weights."""
        return server.state

    def learning_rate(self, lr: float) -> float:
        """Step of the local optimiser, from the learning rate of the round (which stays `task.lr`)."""
        return lr

    def settings_without_effect(self) -> frozenset[str]:
        """Names of settings that change no result, given the others: two runs that differ in them alone are alike."""
        return frozenset()

    def begin(self, task: Task, broadcast: State, state: State) -> State:
        """What `gradient` and `finish` see as `state`; made once at the start of a client's job."""
        return {**broadcast, **state}

    def gradient(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor]:
        """Gradient that the local optimiser applies to `weights`, and the local loss it saw. Pure."""
        return gradients.plain(task, weights, batch)

    def finish(self, task: Task, weights: Weights, steps: int, state: State) -> tuple[State, State]:
        """The client's new state and the payload it sends beside its weights; `weights` are the trained ones."""
        return {}, {}

    def aggregate(self, server: ServerState, updates: Sequence[Update]) -> ServerState:
        """The server after a round: here the average of the updates' weights by their shares (paper, equation 1)."""
        averaged = mean([update.weights for update in updates], [update.share for update in updates])
        return replace(server, weights=averaged)

    def fine_tuning(self) -> Algorithm:
        """The method by which a client fine-tunes the final global model: here plain steps of all weights."""
        return Algorithm()

    def personal_settings(self) -> dict[str, Any]:
        """How `fedsol personalize` treats a run of this method if nothing else is asked for."""
        return {}
