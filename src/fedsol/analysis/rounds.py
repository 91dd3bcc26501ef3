"""Analyses over rounds: one row per round, written while a run trains and read when it is analyzed."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedsol.analysis import check_task, make_analysis, names_of
from fedsol.analysis.base import Analysis, Runs, Series, T, as_plain
from fedsol.analysis.replay import LocalRound, Replay, check_complete
from fedsol.config.experiment import Experiment
from fedsol.config.tables import unknown_name
from fedsol.core.files import append_text, disk_errors_named, read_json_lines, write_atomically
from fedsol.errors import InputError
from fedsol.federation.federation import Federation
from fedsol.plots.curves import Curve, curve_by_round
from fedsol.runs.rows import Row
from fedsol.training.callbacks import Callback, RoundResult

R = TypeVar("R")


@dataclass(frozen=True)
class RoundAnalysis(Analysis[T], Generic[T, R]):
    """An analysis of local training that a run can also record in every round."""

    clients: tuple[int, ...] | None = None
    """Clients to retrain; None for those sampled in the next round."""
    row: ClassVar[type[Any]]
    """The dataclass of a row."""

    def measure_round(self, federation: Federation, done: LocalRound) -> R:
        """Return the row of a round."""
        raise NotImplementedError

    def check_experiment(self, experiment: Experiment) -> None:
        """Refuse an experiment whose rounds this cannot analyze."""

    def check(self, runs: Runs) -> None:
        if self.clients is not None:
            for replay in runs.replays:
                replay.clients(self.clients)

    def measure(self, runs: Runs) -> Any:
        """Return the rows that each run has recorded, or the row of one repeated round."""

        def rows(replay: Replay) -> tuple[R, ...]:
            if recorded := self.recorded(replay.run.path):
                return recorded
            return (self.measure_round(replay.federation, replay.local_round(self.clients)),)

        return [item.map(rows) for item in runs.series]

    def recorded(self, directory: Path) -> tuple[R, ...]:
        """Return the rows that a run has recorded."""
        path, adapter = rows_path(directory, self.stem), TypeAdapter(self.row)
        try:
            return tuple(adapter.validate_python(row) for row in read_json_lines(path))
        except ValidationError as error:
            raise InputError(f"{path}: must be rows of {self.stem} ({error})") from error


def curves_by_round(found: Iterable[Series[tuple[Any, ...]]], field: str) -> list[Curve]:
    """Return a field of the rows as curves, without the labels that have no rows."""
    return [
        curve_by_round(item.label, [{row.round: getattr(row, field) for row in run} for run in item.runs])
        for item in found
        if any(item.runs)
    ]


class RowWriter(Callback):
    """Writes the row of every round to `analysis/<name>.jsonl` in the run directory, and cannot change the run.

    A resumed run first cuts the file back to the rounds that it continues from. A round in which no update was
    accepted has no row.
    """

    def __init__(self, analysis: RoundAnalysis[Any, Any], directory: Path) -> None:
        self._analysis = analysis
        self._path = rows_path(directory, analysis.stem)
        self._federation: Federation | None = None

    def started(self, federation: Federation, rows: Sequence[Row]) -> None:
        check_complete(federation)
        self._federation = federation
        earlier = [row for row in read_json_lines(self._path) if row["round"] <= len(rows)]
        with disk_errors_named(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, "".join(json.dumps(row) + "\n" for row in earlier))

    def round_finished(self, result: RoundResult) -> None:
        assert self._federation is not None
        if not result.updates:
            return
        done = LocalRound(result.round, result.before, result.updates)
        row = as_plain(self._analysis.measure_round(self._federation, done))
        append_text(self._path, json.dumps(row, allow_nan=False) + "\n")


def callbacks_for(names: Iterable[str], directory: Path, experiment: Experiment) -> list[Callback]:
    """Return the callbacks of these analyses, and of those already begun in the run directory."""
    allowed = names_of(per_round=True)
    found: list[Callback] = []
    for name in sorted({*names, *(name for name in allowed if rows_path(directory, name).is_file())}):
        if name not in allowed:
            raise unknown_name("--analyze", name, allowed)
        check_task([name], experiment.task.kind)
        analysis = make_analysis(name)
        assert isinstance(analysis, RoundAnalysis)
        analysis.check_experiment(experiment)
        found.append(RowWriter(analysis, directory))
    return found


def rows_path(directory: Path, name: str) -> Path:
    """Return the path of an analysis's rows in a run."""
    return directory / "analysis" / f"{name}.jsonl"
