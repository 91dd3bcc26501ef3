"""What all trackers share: the values that are sent, their names, and how a run is resumed."""

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from fedsol.config.experiment import Experiment
from fedsol.core.files import read_json_object, write_atomically
from fedsol.errors import InputError, RunError
from fedsol.federation.federation import Federation
from fedsol.runs.rows import Row
from fedsol.runs.run import Run
from fedsol.trackers import check_tracker
from fedsol.training.callbacks import Callback, RoundResult

log = logging.getLogger(__name__)

NOT_METRICS = {"round", "client_ids"}


class Tracker(Callback):
    """A callback that sends every finished round. Adapters override `open`, `send` and `close`.

    A resumed run continues the same tracked run, whose id is in `trackers.json` of the run directory. Rounds from
    before tracking was on are sent first.
    """

    name: ClassVar[str]
    needs_updates = False

    def __init__(self, directory: str | Path) -> None:
        check_tracker(self.name)
        self.directory = Path(directory)
        self._last = 0
        self._is_open = False

    def open(self, experiment: Experiment, identity: str | None, rounds: int) -> tuple[str, int]:
        """Start a tracked run, or continue the one with this id; return its id and the last round it has.

        `rounds` are finished; any tracked round after them is out of date.
        """
        raise NotImplementedError

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of one round."""
        raise NotImplementedError

    def close(self, complete: bool) -> None:
        """End the tracked run; one that is not complete may be resumed."""
        raise NotImplementedError

    def started(self, federation: Federation, rows: Sequence[Row]) -> None:
        identities = self._identities()
        try:
            identity, self._last = self.open(federation.experiment, identities.get(self.name), len(rows))
            self._is_open = True
        except Exception as error:  # of any class: it is the tool's; nothing is trained yet
            raise RunError(f"{self.name}: tracking could not start: {_one_line(error)}") from error
        if self.directory.is_dir():
            write_atomically(self._file, json.dumps({**identities, self.name: identity}, indent=2) + "\n")
        for row in rows[self._last :]:
            self._send(row)

    def round_finished(self, result: RoundResult) -> None:
        self._send(result.row)

    def finished(self, run: Run) -> None:
        if self._is_open:
            self._is_open = False
            self._guarded(lambda: self.close(run.is_finished))

    def _send(self, row: Row) -> None:
        step = int(row["round"])
        if self._is_open and step > self._last:
            self._guarded(lambda: self.send(step, metrics_of(row)))

    def _guarded(self, action: Callable[[], None]) -> None:
        """Do something with the tool; if it fails, warn and continue the run without it."""
        try:
            action()
        except Exception as error:  # of any class: it is the tool's
            self._is_open = False
            log.warning("%s failed; the run continues without it: %s", self.name, _one_line(error))

    @property
    def _file(self) -> Path:
        return self.directory / "trackers.json"

    def _identities(self) -> dict[str, str]:
        if not self._file.is_file():
            return {}
        try:
            return {key: str(value) for key, value in read_json_object(self._file).items()}
        except InputError as error:
            raise RunError(f"{error}; delete it to start a new tracked run") from error


def metrics_of(row: Row) -> dict[str, float]:
    """Return the numbers of a row under their names in metrics.jsonl; of a list or table as `class_accuracy/3`."""
    return dict(_numbers({key: value for key, value in row.items() if key not in NOT_METRICS}))


def _numbers(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in table.items():
        if isinstance(value, list):
            value = {str(index): item for index, item in enumerate(value)}
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield prefix + key, value


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
