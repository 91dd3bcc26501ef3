"""Recipe and Cell: a table or figure of the paper as the grid of experiments behind it."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich.console import Console

from fedsol.config.experiment import Experiment
from fedsol.paper.numbers import Key, Number
from fedsol.runs.rows import Row
from fedsol.training.loop import Callback

LAST = 10
"""Rounds whose mean says more than a single one, which jumps."""


@dataclass(frozen=True)
class Cell:
    """One cell of a table: the experiment that fills it, and the paper's number.

    `facts` is what `--only` selects by. An `extra` cell is not the paper's own (another reading of a method): it is run
    only when it is asked for. A cell without an experiment is measured or looked up, not trained; `reads` names the
    dataset that this takes, if any.
    """

    key: Key
    facts: Mapping[str, str]
    experiment: Experiment | None = None
    paper: Number | None = None
    extra: bool = False
    reads: str = ""

    @property
    def dataset(self) -> str:
        """The dataset whose files the cell needs; empty for none."""
        return self.experiment.data.name if self.experiment else self.reads


@dataclass(frozen=True)
class FinishedRun:
    """A run as its directory tells it."""

    path: Path
    experiment: Experiment
    rows: list[Row]

    @property
    def accuracy(self) -> float | None:
        """Test accuracy of the last evaluated round."""
        return self.accuracies[-1] if self.accuracies else None

    @property
    def accuracies(self) -> list[float]:
        """Test accuracy of every evaluated round."""
        return [accuracy for row in self.rows if (accuracy := row["test_accuracy"]) is not None]

    @property
    def evaluated(self) -> list[Row]:
        """The rounds whose model was tested."""
        return [row for row in self.rows if row["test_accuracy"] is not None]

    @property
    def means(self) -> list[float]:
        """For every evaluated round the mean of the last ten (fewer at the beginning)."""
        values = self.accuracies
        return [statistics.fmean(values[max(0, end - LAST) : end]) for end in range(1, len(values) + 1)]

    def smoothed(self) -> "FinishedRun":
        """The evaluated rounds, each with the mean of the last ten for its accuracy."""
        rows: list[Row] = [{**row, "test_accuracy": mean} for row, mean in zip(self.evaluated, self.means, strict=True)]
        return replace(self, rows=rows)

    def reached(self, accuracy: float) -> int | None:
        """The first round at which the mean of ten is as high."""
        later = zip(self.evaluated[LAST - 1 :], self.means[LAST - 1 :], strict=True)
        return next((row["round"] for row, mean in later if mean >= accuracy), None)


@dataclass(frozen=True)
class Ours:
    """What we have for a cell, in the unit of the table; `differs` says in what it is not the paper's setting."""

    mean: float
    std: float | None = None
    differs: tuple[str, ...] = ()
    runs: tuple[FinishedRun, ...] = ()


@dataclass(frozen=True)
class Folders:
    """Where a recipe finds its data, and where its pictures go."""

    data: Path
    out: Path


Measure = Callable[[Sequence[Cell], Path], Mapping[Key, Ours]]
"""Fills cells that are not trained: computes or measures their numbers here and now; told where the data is.

Refuses (`InputError`) if data that it reads is not there.
"""
Evaluate = Callable[[Cell, Sequence[FinishedRun], Console], Ours | None]
"""Makes a cell's number from its finished runs; what takes long is shown on the console and kept in their directories.
"""
Afterwards = Callable[[Cell, Experiment, Path | None], Experiment | None]
"""An experiment that takes about as long as what `evaluate` still has to do with a run; told where that is, if begun.
"""
Watch = Callable[[Experiment, Path], Sequence[Callback]]
"""Callbacks that measure something during a run, whose directory they are told."""


@dataclass(frozen=True)
class Drawn:
    """The files of a figure, and what it shows in a few lines."""

    files: Sequence[Path]
    lines: Sequence[str] = ()


Draw = Callable[[Sequence[Cell], Mapping[Key, Ours], Folders], Drawn]
"""Draws a figure of the cells that are there."""


@dataclass(frozen=True)
class Recipe:
    """A table or figure of the paper.

    Its cells are trained (`Cell.experiment`), or filled by `measure`. What a run is worth is its last test accuracy,
    or what `evaluate` says. That may take long, so it is asked of chosen cells, and of others where `afterwards` says
    that no work is left (to an estimate it says how much there is). `draw` makes the pictures of a figure. With `watch`
    something is measured while training, so that its runs are its own, in a folder of the recipe's name.
    """

    name: str
    kind: Literal["table", "figure"]
    title: str
    label: str
    """The paper's LaTeX label."""
    cells: Callable[[], list[Cell]]
    unit: str = "%"
    digits: int | None = 2
    notes: Sequence[str] = ()
    measure: Measure | None = None
    evaluate: Evaluate | None = None
    afterwards: Afterwards | None = None
    draw: Draw | None = None
    watch: Watch | None = None
