"""Observers of a run while it trains: analyses, trackers and the live report."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedsol.config.experiment import Experiment
from fedsol.errors import InputError
from fedsol.trackers import check_tracker, make_tracker
from fedsol.training.loop import Callback


@dataclass(frozen=True)
class Observers:
    """The options `--live`, `--port`, `--track` and `--analyze`, checked before anything starts."""

    live: bool = False
    port: int | None = None
    trackers: Sequence[str] = ()
    analyses: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.port is not None and not self.live:
            raise InputError(f"--port: needs --live (got {self.port})")
        for name in self.trackers:
            check_tracker(name)

    @contextlib.contextmanager
    def callbacks(self, experiment: Experiment, out: Path, say: Callable[[str], None]) -> Iterator[list[Callback]]:
        """Give the callbacks of the run in `out`. The live report is last, so that it sees what others write."""
        from fedsol.analysis.rounds import callbacks_for

        with contextlib.ExitStack() as stack:
            found: list[Callback] = [*callbacks_for(self.analyses, out, experiment)]
            found += [make_tracker(name, out) for name in dict.fromkeys(self.trackers)]
            if self.live:
                from fedsol.report.live import LiveView

                view = stack.enter_context(LiveView(out, self.port or 0))
                say(f"Live report, until the run ends: {view.address}")
                found.append(view)
            yield found
