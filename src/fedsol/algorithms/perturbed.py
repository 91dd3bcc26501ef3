"""PerturbedAlgorithm: the local gradient at perturbed weights, in place of that of another method."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.controls import FACTOR
from fedsol.algorithms.directions import Direction, LocalGradient
from fedsol.algorithms.gradients import Perturbation
from fedsol.algorithms.task import Task
from fedsol.core.messages import ServerState, State, Update
from fedsol.core.weights import Weights
from fedsol.data.batches import Batch


@dataclass(frozen=True)
class PerturbedAlgorithm(Algorithm):
    """Base of the methods that perturb weights along a direction and then correct the gradient as another method does.

    `g = correct(grad L(w + eps))`, `eps = rho Lambda (.) d / ||d||`: states, correction and server side are those of
    `corrector`, which sees the unperturbed weights. Without a perturbation it is that method exactly.
    """

    numbers_of_steps = (FACTOR,)

    @property
    def perturbation(self) -> Perturbation:
        """How far, with which Lambda, and in which part weights are perturbed."""
        raise NotImplementedError

    @property
    def along(self) -> Direction:
        """Along what weights are perturbed."""
        return LocalGradient()

    @property
    def corrector(self) -> Algorithm:
        """The method whose correction, states and server side these are."""
        return Algorithm()

    @property
    def needs_sgd(self) -> bool:  # type: ignore[override]
        """Whether the formulas of the corrector or of the direction hold only for SGD with momentum."""
        return self.corrector.needs_sgd or self.along.needs_sgd

    def averages_plainly(self) -> bool:
        return self.corrector.averages_plainly() and type(self.along).aggregate is Direction.aggregate

    def init_server(self, parameters: Weights) -> State:
        return {**self.corrector.init_server(parameters), **self.along.init_server(parameters)}

    def init_client(self, parameters: Weights, buffers: Weights) -> State:
        own = self.along.init_client(parameters)
        return {**self.corrector.init_client(parameters, buffers), **own}

    def broadcast(self, server: ServerState) -> State:
        return {**self.corrector.broadcast(server), **self.along.broadcast(server)}

    def begin(self, task: Task, broadcast: State, state: State) -> State:
        own = self.along.begin(task, broadcast, state)
        return {**self.corrector.begin(task, broadcast, state), **own}

    def gradient(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor]:
        gradient, loss, _ = self.step(task, weights, batch, state)
        return gradient, loss

    def step(self, task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor, State]:
        here, direction = task.at(weights, batch), self.along
        perturbation = direction.perturbation(here, self.perturbation, state)
        local, loss = (here if perturbation is None else here.moved(perturbation)).gradient()
        return self.corrector.corrected(local, here, state), loss, direction.after(perturbation, state)

    def finish(self, task: Task, weights: Weights, steps: int, state: State) -> tuple[State, State]:
        kept, payload = self.corrector.finish(task, weights, steps, state)
        own, sent = self.along.finish(task, steps, state)
        return {**kept, **own}, {**payload, **sent}

    def aggregate(self, server: ServerState, updates: Sequence[Update]) -> ServerState:
        after = self.corrector.aggregate(server, updates)
        return replace(after, state={**after.state, **self.along.aggregate(server, updates)})
