"""Engine: the interface between the loops and wherever clients are trained."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from fedsol.core.messages import Missing, ServerState, Update
from fedsol.federation.tasks import A, Task

Aggregation = Callable[[ServerState, Sequence[Update]], ServerState]


class Engine(ABC):
    """Runs tasks. Use it as a context manager: it may hold processes or connections."""

    keeps_states = False
    """Whether clients keep their states themselves; jobs and updates then carry receipts of them."""

    workers = 1
    """How many tasks it does at the same time on this machine."""

    @abstractmethod
    def run(self, tasks: Sequence[Task[A]]) -> Iterator[tuple[Task[A], A | Missing]]:
        """Yield each task with its answer, in any order, as they are finished.

        The tasks are of one kind and share their weights (and broadcast).
        """

    def aggregate(self, before: ServerState, updates: Sequence[Update], rule: Aggregation) -> ServerState:
        """Apply the rule that makes one model of many; an engine may protect what goes in and what comes out."""
        return rule(before, updates)

    def close(self) -> None:
        """Release processes and connections."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
