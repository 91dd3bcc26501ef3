"""What all trackers share: which values are sent, under which names, and how a resumed run goes on."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from fedsol.config.experiment import Experiment
from fedsol.core.files import write_atomically
from fedsol.errors import RunError
from fedsol.federation.federation import Federation
from fedsol.runs.rows import Row
from fedsol.runs.run import Run
from fedsol.trackers import check_tracker
from fedsol.training.loop import Callback, RoundResult

log = logging.getLogger(__name__)

NOT_METRICS = {"round", "client_ids"}


class Tracker(Callback):
    """A callback that sends every finished round on. Adapters override `open`, `send` and `close`.

    A run that is resumed goes on in the same tracked run: its id is kept in `trackers.json` of the run directory.
    Rounds that the tool does not have yet, because it was not asked for at first, are sent when the run goes on.
    """

    name: ClassVar[str]

    def __init__(self, directory: str | Path) -> None:
        check_tracker(self.name)
        self.directory = Path(directory)
        self._last = 0
        self._is_open = False

    def open(self, experiment: Experiment, identity: str | None, rounds: int) -> tuple[str, int]:
        """Begins, or goes on with, the tracked run of this id; returns its id and the last round it has.

        `rounds` are finished, the tracked ones after them are out of date.
        """
        raise NotImplementedError

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        """Takes the metrics of one round."""
        raise NotImplementedError

    def close(self, complete: bool) -> None:
        """Ends the tracked run; one that is not complete may be resumed."""
        raise NotImplementedError

    def started(self, federation: Federation, rows: Sequence[Row]) -> None:
        identities = self._identities()
        try:
            identity, self._last = self.open(federation.experiment, identities.get(self.name), len(rows))
            self._is_open = True
        except Exception as error:  # of the tool's own kinds; nothing is trained yet, so the run can be begun again
            raise RunError(f"{self.name}: tracking could not begin: {_one_line(error)}") from error
        if self.directory.is_dir():
            text = json.dumps({**identities, self.name: identity}, indent=2) + "\n"
            write_atomically(self._file, text)
        for row in rows:
            self._send(row)

    def round_finished(self, result: RoundResult) -> None:
        self._send(result.row)

    def finished(self, run: Run) -> None:
        if self._is_open:
            self._is_open = False
            self._guarded(lambda: self.close(len(run.rows) == run.experiment.rounds))

    def _send(self, row: Row) -> None:
        step = int(row["round"])
        if self._is_open and step > self._last:
            self._guarded(lambda: self.send(step, metrics_of(row)))

    def _guarded(self, action: Any) -> None:
        """A tool that fails must not stop a run: it is told and then left out."""
        try:
            action()
        except Exception as error:  # of the tool's own kinds
            self._is_open = False
            log.warning("%s failed, the run goes on without it: %s", self.name, _one_line(error))

    @property
    def _file(self) -> Path:
        return self.directory / "trackers.json"

    def _identities(self) -> dict[str, str]:
        if not self._file.is_file():
            return {}
        try:
            return {str(key): str(value) for key, value in json.loads(self._file.read_text(encoding="utf-8")).items()}
        except (ValueError, AttributeError) as error:
            raise RunError(f"{self._file}: cannot be read: {error}; without it the run is tracked anew") from error


def metrics_of(row: Row) -> dict[str, float]:
    """The numbers of a row under their names in metrics.jsonl; those of a list or table as `class_accuracy/3`."""
    return dict(_numbers({key: value for key, value in row.items() if key not in NOT_METRICS}, ""))


def _numbers(table: Mapping[str, Any], prefix: str) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for key, value in table.items():
        if isinstance(value, list):
            found += _numbers({str(index): item for index, item in enumerate(value)}, f"{prefix}{key}/")
        elif isinstance(value, Mapping):
            found += _numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            found.append((prefix + key, value))
    return found


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
