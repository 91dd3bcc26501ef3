"""Ctrl-C without torn files: the signal takes effect only while nothing is being saved."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


_noted = threading.Event()


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """Raise `KeyboardInterrupt` at once, as Python does, and remember it.

    Where Python has to ignore exceptions (in a destructor, say), it would otherwise be lost; `Interrupts` raises it.
    A library that is interrupted while it is imported may raise another error, which says nothing: it is replaced.
    """

    def receive(*_: object) -> None:
        _noted.set()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, receive)
    try:
        yield
    except Exception:
        if _noted.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, previous)
        _noted.clear()


class Interrupts:
    """While active, SIGINT and SIGTERM raise `KeyboardInterrupt`, but only inside `allowed()` blocks.

    One that arrives elsewhere is raised when the next block begins, or at the end. Outside the main thread,
    where Python delivers no signals, it does nothing.
    """

    def __init__(self) -> None:
        self._allowed = False
        self._pending = _noted.is_set()
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._receive) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._pending and error is None:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Let an interrupt end the block at any instant."""
        self._allowed = True
        try:
            if self._pending:
                raise KeyboardInterrupt
            yield
        finally:
            self._allowed = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._pending = True
        if self._allowed:
            raise KeyboardInterrupt
