"""The engine that does one task after another in this process."""

from collections.abc import Iterator, Sequence

from fedsol.engines.base import Engine
from fedsol.federation.federation import Federation
from fedsol.federation.tasks import A, Task


class LocalEngine(Engine):
    """Nothing but a loop."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation

    def run(self, tasks: Sequence[Task[A]]) -> Iterator[tuple[Task[A], A]]:
        for task in tasks:
            yield task, task.answer(self._federation)
