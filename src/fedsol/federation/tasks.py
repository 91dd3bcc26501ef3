"""What an engine is asked to do: frozen tasks, each a pure function of its fields and the federation."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from fedsol.core.messages import Job, State, Update
from fedsol.core.weights import Weights
from fedsol.federation.evaluation import Tally
from fedsol.federation.federation import Federation
from fedsol.federation.personal import PersonalResult, PersonalSettings, personalize_client
from fedsol.federation.sampling import OwnPart

A = TypeVar("A", covariant=True)
"""What answers a task."""

SMALLEST_PART = 1000
"""Fewest examples of the test set that are worth a separate task."""


class EngineTask(ABC, Generic[A]):
    """Work on global weights. The tasks of one call of an engine are of one kind and share their weights."""

    turn: int = 0
    """Tasks of earlier turns are started first."""

    @abstractmethod
    def shared(self) -> tuple[Weights, State]:
        """Return what all tasks of a call have in common: the global weights and the broadcast."""

    @abstractmethod
    def answer(self, federation: Federation) -> A:
        """Do the work, in whatever process this is."""

    def own_state(self) -> State:
        """Return the client's own state, as far as the task needs it."""
        return {}

    def cost(self, federation: Federation) -> float:
        """Return how long the task takes, compared with others of its kind."""
        return 0.0


@dataclass(frozen=True)
class Train(EngineTask[Update]):
    """Train a client; its own state is loaded when it is the job's turn."""

    job: Job
    load_state: Callable[[int], State] | None = None
    turn: int = 0

    @property
    def client(self) -> int:
        """The client that trains."""
        return self.job.client

    def shared(self) -> tuple[Weights, State]:
        return self.job.weights, self.job.broadcast

    def own_state(self) -> State:
        return self.load_state(self.client) if self.load_state else self.job.state

    def answer(self, federation: Federation) -> Update:
        return federation.train(replace(self.job, state=self.own_state()))

    def cost(self, federation: Federation) -> float:
        return len(federation.partition[self.client]) * self.job.work


@dataclass(frozen=True)
class _Weights(EngineTask[A]):
    weights: Weights

    def shared(self) -> tuple[Weights, State]:
        return self.weights, {}


@dataclass(frozen=True)
class EvaluateTest(_Weights[Tally]):
    """Evaluate on the test set from example `start` to before `stop`."""

    start: int
    stop: int

    def answer(self, federation: Federation) -> Tally:
        return federation.evaluate(self.weights, self.start, self.stop)


@dataclass(frozen=True)
class EvaluateValidation(EvaluateTest):
    """Evaluate on the server's validation set, likewise."""

    def answer(self, federation: Federation) -> Tally:
        return federation.evaluate_validation(self.weights, self.start, self.stop)


@dataclass(frozen=True)
class EvaluateClient(_Weights[Tally]):
    """Evaluate on the hold-out set or on the validation set of a client, with what it keeps of the model."""

    client: int
    part: OwnPart = "held_out"
    load_state: Callable[[int], State] | None = None

    def own_state(self) -> State:
        return self.load_state(self.client) if self.load_state else {}

    def answer(self, federation: Federation) -> Tally:
        weights = federation.exchange.complete(self.weights, self.own_state())
        return federation.evaluate_client(weights, self.client, self.part)


@dataclass(frozen=True)
class Personalize(_Weights[PersonalResult]):
    """Make and test a client's own models, from the global one with what the client keeps."""

    client: int
    settings: PersonalSettings
    folder: Path | None = None
    """Where its model is saved, if that is asked for."""
    load_state: Callable[[int], State] | None = None

    def own_state(self) -> State:
        return self.load_state(self.client) if self.load_state else {}

    def answer(self, federation: Federation) -> PersonalResult:
        weights = federation.exchange.complete(self.weights, self.own_state())
        return personalize_client(federation, weights, self.client, self.settings, self.folder)

    def cost(self, federation: Federation) -> float:
        return len(federation.partition[self.client])


def test_set_tasks(federation: Federation, weights: Weights, workers: int) -> list[EvaluateTest]:
    """Split the test set among workers, in whole batches, so that the batches do not depend on their number."""
    ranges = _ranges(len(federation.dataset.test), federation.experiment.server.evaluate_batch, workers)
    return [EvaluateTest(weights, part.start, part.stop) for part in ranges]


def validation_tasks(federation: Federation, weights: Weights, workers: int) -> list[EvaluateValidation]:
    """Split the server's validation set among workers, likewise."""
    ranges = _ranges(len(federation.central_validation), federation.experiment.server.evaluate_batch, workers)
    return [EvaluateValidation(weights, part.start, part.stop) for part in ranges]


def _ranges(examples: int, batch: int, workers: int) -> list[range]:
    parts = max(workers, min(4 * workers, examples // SMALLEST_PART)) if workers > 1 else 1
    size = max(1, -(-examples // (parts * batch)) * batch)
    return [range(start, min(start + size, examples)) for start in range(0, examples, size)]
