"""Engine: the interface between the round loop and wherever clients are trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fedsol.core.messages import Job, Missing, ServerState, State, Update
from fedsol.core.weights import Weights
from fedsol.errors import InputError
from fedsol.federation.evaluation import Tally

if TYPE_CHECKING:
    from fedsol.federation.personal import PersonalResult
    from fedsol.federation.personal_settings import PersonalSettings

Aggregation = Callable[[ServerState, Sequence[Update]], ServerState]


class Engine(ABC):
    """Trains and evaluates. Use it as a context manager: it may hold processes or connections."""

    keeps_states = False
    """Whether clients keep their states themselves; jobs and updates then carry receipts of them."""

    @abstractmethod
    def train(self, jobs: Sequence[Job], state_of: Callable[[int], State]) -> Iterator[Update | Missing]:
        """Runs the jobs of one round; updates come in any order, as they are finished.

        `state_of` gives a client's own state, which is put into its job when it is that job's turn.
        """

    def aggregate(self, before: ServerState, updates: Sequence[Update], rule: Aggregation) -> ServerState:
        """Applies the rule that makes one model of many; an engine may protect what goes in and what comes out."""
        return rule(before, updates)

    @abstractmethod
    def evaluate(self, weights: Weights) -> Tally:
        """Evaluates global weights on the test set."""

    @abstractmethod
    def evaluate_clients(self, weights: Weights, clients: Sequence[int]) -> Iterator[tuple[int, Tally]]:
        """Evaluates global weights on what these clients held out; answers come in any order."""

    def personalize(
        self, weights: Weights, clients: Sequence[int], settings: PersonalSettings
    ) -> Iterator[PersonalResult]:
        """Makes and tests these clients' own models (`personalize_client`); results come in any order."""
        raise InputError(f"engine.kind: {type(self).__name__} cannot personalise; allowed: 'local', 'workers'")

    @abstractmethod
    def close(self) -> None:
        """Lets go of whatever the engine holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
