"""What may look on while a run is trained: analyses, trackers and the live report."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fedsol.config.experiment import Experiment
from fedsol.errors import InputError
from fedsol.trackers import check_tracker, make_tracker
from fedsol.training.loop import Callback


@dataclass(frozen=True)
class Watching:
    """The options `--live`, `--port`, `--track` and `--analyze`, checked before anything is begun."""

    live: bool = False
    port: int | None = None
    track: str | None = None
    analyze: str | None = None

    def __post_init__(self) -> None:
        if self.port is not None and not self.live:
            raise InputError("--port: needs --live, which it is for")
        for name in self.trackers:
            check_tracker(name)

    @property
    def trackers(self) -> list[str]:
        """The trackers that are named, each once."""
        return _names(self.track)

    @contextlib.contextmanager
    def callbacks(self, experiment: Experiment, out: Path, say: Callable[[str], None]) -> Iterator[list[Callback]]:
        """The callbacks that look on at the run in `out`; the live view is last, so that it sees what others write."""
        from fedsol.analysis.callbacks import callbacks_for

        with contextlib.ExitStack() as stack:
            found: list[Callback] = [*callbacks_for(_names(self.analyze), out, experiment)]
            found += [make_tracker(name, out) for name in self.trackers]
            if self.live:
                from fedsol.report.live import LiveView

                view = stack.enter_context(LiveView(out, self.port or 0))
                say(f"Live report, until the run ends: {view.address}")
                found.append(view)
            yield found


def _names(text: str | None) -> list[str]:
    """Names separated by commas, each once."""
    return list(dict.fromkeys(filter(None, (part.strip() for part in (text or "").split(",")))))
