"""Engine: the interface between the round loop and wherever clients are trained."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from fedsol.evaluation import Tally
from fedsol.messages import Job, State, Update
from fedsol.weights import Weights


class Engine(ABC):
    """Trains and evaluates. Use it as a context manager: it may hold processes or connections."""

    @abstractmethod
    def train(self, jobs: Sequence[Job], state_of: Callable[[int], State]) -> Iterator[Update]:
        """Runs the jobs of one round; updates come in any order, as they are finished.

        `state_of` gives a client's own state, which is put into its job when it is that job's turn.
        """

    @abstractmethod
    def evaluate(self, weights: Weights) -> Tally:
        """Evaluates global weights on the test set."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of whatever the engine holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
