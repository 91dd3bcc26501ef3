"""Progress on standard error, when that is a terminal; nothing otherwise."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


class DownloadBar:
    """A rich progress bar that speaks the protocol pooch expects: `total`, `update`, `reset`, `close`."""

    def __init__(self, description: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._progress.add_task(description, total=None)
        self._total = 0

    @property
    def total(self) -> int:
        return self._total

    @total.setter
    def total(self, size: int) -> None:
        self._total = size
        # Zero means that the server did not say: then the bar only pulses.
        self._progress.update(self._task, total=size or None)

    @property
    def completed(self) -> float:
        """Bytes counted so far."""
        return self._progress.tasks[0].completed

    def start(self) -> None:
        self._progress.start()

    def update(self, size: int) -> None:
        self._progress.update(self._task, advance=size)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop()


@contextmanager
def download_bar(description: str) -> Iterator[DownloadBar]:
    """A download bar that is closed however the download ends."""
    bar = DownloadBar(description)
    bar.start()
    try:
        yield bar
    finally:
        bar.close()


def tracked(items: Iterable[Item], total: int, description: str) -> Iterator[Item]:
    """The items, with a progress bar while they are used up."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(items, description, total=total, console=console, disable=not console.is_terminal)
