"""What may look on while a run is trained: the live report and trackers."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fedsol.errors import InputError
from fedsol.trackers import check_tracker, make_tracker
from fedsol.training import Callback


@dataclass(frozen=True)
class Watching:
    """The options `--live`, `--port` and `--track`, checked before anything is begun."""

    live: bool = False
    port: int | None = None
    track: str | None = None

    def __post_init__(self) -> None:
        if self.port is not None and not self.live:
            raise InputError("--port: needs --live, which it is for")
        for name in self.trackers:
            check_tracker(name)

    @property
    def trackers(self) -> list[str]:
        """The trackers that are named, each once."""
        return list(dict.fromkeys(filter(None, (part.strip() for part in (self.track or "").split(",")))))

    @contextlib.contextmanager
    def callbacks(self, out: Path, say: Callable[[str], None]) -> Iterator[list[Callback]]:
        """The callbacks that look on at the run in `out`; the live view is last, so that it sees what others write."""
        with contextlib.ExitStack() as stack:
            found: list[Callback] = [make_tracker(name, out) for name in self.trackers]
            if self.live:
                from fedsol.report.live import LiveView

                view = stack.enter_context(LiveView(out, self.port or 0))
                say(f"Live report, until the run ends: {view.address}")
                found.append(view)
            yield found
