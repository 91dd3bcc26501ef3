"""The interface of an analysis (measure, draw, say), the runs it analyzes, and the driver that writes its files."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from fedsol.analysis.replay import Replay
from fedsol.config.experiment import Experiment
from fedsol.core.files import write_output
from fedsol.core.randomness import one_torch_thread
from fedsol.plots.style import Figure, fedsol_style, save_pictures
from fedsol.runs.groups import group_runs
from fedsol.runs.run import Run

T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True)
class Series(Generic[T]):
    """The results of the runs with one label: one entry per seed."""

    label: str
    runs: tuple[T, ...]

    def map(self, function: Callable[[T], S]) -> "Series[S]":
        """Return the same label with the function applied to every run."""
        return Series(self.label, tuple(function(run) for run in self.runs))


class Runs:
    """The runs that are analyzed together, or the experiment to analyze without a run."""

    def __init__(self, runs: Iterable[Run], experiment: Experiment | None = None, note: str = "") -> None:
        self.replays = [Replay(run) for run in runs]
        self.experiment = experiment or self.replays[0].run.experiment
        self._note = note

    @cached_property
    def series(self) -> list[Series[Replay]]:
        """By label; several seeds of one experiment together."""
        groups = group_runs([replay.run for replay in self.replays])
        return [Series(group.label, tuple(self.replays[number] for number in group.runs)) for group in groups]

    @property
    def subject(self) -> str:
        """Data, partition and note, for titles."""
        partition = self.experiment.data.partition
        detail = {"dirichlet": f"alpha {partition.alpha:g}", "sharding": f"{partition.shards} shards"}
        parts = [Path(self.experiment.data.name).stem, partition.kind, detail.get(partition.kind), self._note]
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class Analysis(Generic[T]):
    """One analysis. Its fields are its options; it refuses bad ones when it is made."""

    stem: ClassVar[str]
    """Name of its files: figures `.png` and `.pdf`, and data `.json`."""
    also: ClassVar[tuple[type["Analysis[Any]"], ...]] = ()
    """Analyses that follow it, with their own files."""

    def check(self, runs: Runs) -> None:
        """Refuse runs that do not fit the options, before anything is computed or written."""

    def measure(self, runs: Runs) -> T | None:
        """Return what the figure and the data file show; None if the runs have nothing to show."""
        raise NotImplementedError

    def draw(self, found: T, subject: str) -> Figure:
        """Return the figure; `subject` is for its title."""
        raise NotImplementedError

    def say(self, found: T) -> Iterable[str]:
        """Return the main numbers, as lines of text."""
        return []

    def data(self, found: T) -> Any:
        """Return the content of the data file."""
        return found

    def write_figure(self, found: T, out: Path, subject: str) -> list[Path]:
        """Write the figure into a directory, as PNG and PDF."""
        with fedsol_style():
            return save_pictures(self.draw(found, subject), out / self.stem)


@dataclass(frozen=True)
class Output:
    """The files that an analysis wrote, and its main numbers."""

    files: list[Path]
    lines: list[str]


def run_analysis(analysis: Analysis[Any], runs: Runs, out: Path) -> Output:
    """Run one analysis on one thread, as training does: the same numbers on every machine."""
    output = Output([], [])
    with one_torch_thread():
        for part in (analysis, *(kind() for kind in analysis.also)):
            if (found := part.measure(runs)) is not None:
                output.files.extend(part.write_figure(found, out, runs.subject))
                output.files.append(write_data(out / f"{part.stem}.json", part.data(found)))
                output.lines.extend(part.say(found))
    return output


def write_data(path: Path, content: Any) -> Path:
    """Write the data file of a figure: dataclasses, mappings, sequences and plain values as JSON."""
    return write_output(path, json.dumps(as_plain(content), indent=1) + "\n")


def as_plain(value: Any) -> Any:
    """Return what JSON can hold: dataclasses and mappings as objects, a number that is not finite as null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
