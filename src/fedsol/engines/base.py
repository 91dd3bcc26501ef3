"""Engine: the interface between the loops and the place where clients are trained; LocalEngine, the simplest."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from fedsol.core.messages import Missing
from fedsol.federation.federation import Federation
from fedsol.federation.tasks import A, EngineTask

AHEAD = 2
"""A task may start while one of so many turns before its own is unfinished, and no earlier one."""


class Engine(ABC):
    """Runs tasks. Use it as a context manager: it may hold processes or connections."""

    keeps_states = False
    """Whether clients keep their own states; jobs and updates then carry references to them."""

    workers = 1
    """How many tasks run at the same time on this machine."""

    @abstractmethod
    def run(self, tasks: Sequence[EngineTask[A]]) -> Iterator[tuple[EngineTask[A], A | Missing]]:
        """Yield each task with its answer, in any order, as they are finished.

        The tasks are of one kind and share their weights (and broadcast).
        """

    def close(self) -> None:
        """Release processes and connections."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalEngine(Engine):
    """Run one task after another in this process."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation

    def run(self, tasks: Sequence[EngineTask[A]]) -> Iterator[tuple[EngineTask[A], A]]:
        for task in tasks:
            yield task, task.answer(self._federation)
