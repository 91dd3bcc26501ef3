"""A table or figure of the paper: its cells, the experiments behind them and our numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from fedsol.analysis.base import Output
from fedsol.config.experiment import Experiment
from fedsol.config.overrides import differing_keys
from fedsol.core.statistics import sample_mean_std
from fedsol.paper.numbers import Heading, Key, Number
from fedsol.paper.settings import SEEDS
from fedsol.paper.store import flat
from fedsol.runs.run import Run
from fedsol.training.callbacks import Callback


@dataclass(frozen=True)
class Cell:
    """One cell of a table: the experiment that fills it, and the paper's number.

    `--only` selects by `facts`. An `extra` cell is not the paper's own (another reading of a method); it is run only
    when it is named. A cell without an experiment is computed, not trained; `reads` is the dataset it requires.
    """

    key: Key
    facts: Mapping[str, str]
    experiment: Experiment | None = None
    paper: Number | None = None
    extra: bool = False
    reads: str = ""

    @property
    def dataset(self) -> str:
        """The dataset whose files the cell requires; empty for none."""
        return self.experiment.data.name if self.experiment else self.reads

    @property
    def label(self) -> str:
        """The name that readers see."""
        return ", ".join(part for part in self.key if part)


def run_cell(
    key: Key, run: Experiment, facts: Mapping[str, str], paper: Number | None = None, extra: bool = False
) -> Cell:
    """Return the cell of an experiment, whose facts are those of every run and its own."""
    partition = run.data.partition
    level = {"s": str(partition.shards)} if partition.kind == "sharding" else {"alpha": f"{partition.alpha:g}"}
    common = {"dataset": run.data.name, "partition": partition.kind, **level, "model": run.model.name or ""}
    return Cell(key, {**common, **facts}, run, paper, extra)


@dataclass(frozen=True)
class Ours:
    """Our number for a cell, in the unit of the table; `differs` lists where it is not the paper's setting."""

    mean: float
    std: float | None = None
    differs: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()

    @classmethod
    def of_runs(cls, cell: Cell, runs: Sequence[Run], values: Sequence[float]) -> "Ours | None":
        """Return the mean and deviation of the values of a cell's runs; None without a value."""
        found = sample_mean_std(values)
        if found is None or cell.experiment is None:
            return None
        std = found.std if len(values) > 1 else None
        return cls(found.mean, std, tuple(differences(cell.experiment, runs)), tuple(runs))


def differences(paper: Experiment, runs: Sequence[Run]) -> list[str]:
    """List how the runs of a cell differ from the paper's: rounds, seeds, part of the data, other settings."""
    found = []
    rounds = sorted({len(run.rows) for run in runs})
    if rounds != [paper.rounds]:
        found.append(f"{' to '.join(map(str, rounds))} of {paper.rounds} rounds")
    if len(runs) < len(SEEDS):
        found.append(f"{len(runs)} of {len(SEEDS)} seeds")
    for key in sorted({key for run in runs for key in differing_keys(run.experiment, paper)} - {"seed", "rounds"}):
        value = " or ".join(sorted({str(flat(run.experiment).get(key)) for run in runs}))
        if key == "data.part":
            found.append(f"{100 * float(value):g} % of every client's data and of the test set")
        else:
            found.append(f"{key} {value} instead of {flat(paper).get(key)}")
    if rejected := sum(row["rejected"] for run in runs for row in run.rows):
        found.append(f"{rejected} updates rejected as invalid")
    return found


def is_partial(cells: Sequence[Cell], ours: Mapping[Key, Ours]) -> bool:
    """Return whether a cell of the paper is missing or filled by less than the paper's runs."""
    return any(cell.key not in ours or bool(ours[cell.key].differs) for cell in cells if not cell.extra)


def titled(title: str, cells: Sequence[Cell], ours: Mapping[Key, Ours]) -> str:
    """Return a picture's title, marked if it shows less than the paper's runs."""
    return f"{title}, PARTIAL" if is_partial(cells, ours) else title


class Accuracy:
    """How the finished runs of a cell become its number: the mean over seeds of the last test accuracy, in %."""

    def number(self, cell: Cell, runs: Sequence[Run], console: Console | None = None) -> Ours | None:
        """Return the number; long work shows its progress on the console and is saved in the run directories."""
        return Ours.of_runs(cell, runs, [100 * run.final_accuracy for run in runs if run.final_accuracy is not None])

    def remaining_work(self, cell: Cell, run: Experiment, path: Path) -> Experiment | None:
        """Return an experiment that takes as long as `number` does for the run at `path`; None if nothing is left."""
        return None


@dataclass(frozen=True)
class Table:
    """What every table has."""

    heading: Heading
    cells: Sequence[Cell]

    @property
    def name(self) -> str:
        """The name of the recipe."""
        return self.heading.name


@dataclass(frozen=True)
class TrainedTable(Table):
    """A table of training runs.

    With `callbacks` (from an experiment and its run directory) something is recorded while training, so that the runs
    are this table's own, in a folder of its name. Of the rows that begin with `passing`, what is printed says in which
    round they pass FedAvg's last accuracy.
    """

    evaluation: Accuracy = field(default_factory=Accuracy)
    callbacks: Callable[[Experiment, Path], Sequence[Callback]] | None = None
    passing: str = ""


@dataclass(frozen=True)
class UntrainedTable(Table):
    """A table whose numbers are computed on the spot.

    `compute` fills cells from the folder of the datasets; an `InputError` names data that is missing.
    """

    compute: Callable[[Sequence[Cell], Path], Mapping[Key, Ours]]


@dataclass(frozen=True)
class Folders:
    """Where a figure finds its data, and where its pictures go."""

    data: Path
    out: Path


@dataclass(frozen=True)
class Figure:
    """Pictures of the cells of a table that have a number: their files, and what they show in a few lines."""

    table: TrainedTable | UntrainedTable
    draw: Callable[[Table, Mapping[Key, Ours], Folders], Output]


Recipe = TrainedTable | UntrainedTable | Figure


def table_of(recipe: Recipe) -> TrainedTable | UntrainedTable:
    """Return the table of a recipe: the one behind a figure, or the table itself."""
    return recipe.table if isinstance(recipe, Figure) else recipe
