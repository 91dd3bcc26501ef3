"""`fedsol reproduce`: run the cells of a recipe, resumably, and show the table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from fedsol.algorithms import find_algorithm
from fedsol.config.experiment import Experiment
from fedsol.config.overrides import parse_override
from fedsol.core.files import write_atomically
from fedsol.errors import InputError, RunError
from fedsol.paper.numbers import Key
from fedsol.paper.printing import as_markdown, as_rows, show
from fedsol.paper.recipe import Cell, Figure, Folders, Ours, Recipe, TrainedTable, UntrainedTable, table_of
from fedsol.paper.registry import RECIPES, find_recipe
from fedsol.paper.selection import check_data, select
from fedsol.paper.settings import SEEDS
from fedsol.paper.store import Store, fingerprint, make_folder
from fedsol.runs.environment import environment
from fedsol.runs.run import Run
from fedsol.studies import run_many
from fedsol.training.loop import Callback


@dataclass(frozen=True)
class Options:
    """What a person asked for, beyond the recipe's name."""

    out: Path
    data_root: Path = Path("data")
    seeds: Sequence[int] = SEEDS
    rounds: int | None = None
    part: float | None = None
    only: Sequence[str] = ()
    changes: Sequence[str] = ()
    jobs: int = 1


@dataclass(frozen=True)
class PlannedRun:
    """One run of a cell."""

    cell: Cell
    experiment: Experiment

    @property
    def label(self) -> str:
        """The name for people."""
        return f"{self.cell.label}, seed {self.experiment.seed}"

    @cached_property
    def fingerprint(self) -> str:
        """The same for runs that give the same result."""
        return fingerprint(self.experiment)


def list_recipes(console: Console) -> None:
    """Print every recipe: `fedsol reproduce list`."""
    shown = RichTable(title="recipes", title_justify="left")
    for column in ("name", "kind", "what", "cells", "data"):
        shown.add_column(column, overflow="fold", no_wrap=column in ("name", "kind"))
    for name in RECIPES:
        recipe = find_recipe(name)
        table = table_of(recipe)
        cells = [cell for cell in table.cells if not cell.extra]
        data = dict.fromkeys(cell.dataset for cell in cells if cell.dataset)
        kind = "figure" if isinstance(recipe, Figure) else "table"
        shown.add_row(name, kind, table.title, str(len(cells)), ", ".join(data) or "none")
    console.print(shown)
    console.print("A cell is run with 3 seeds. fedsol reproduce NAME --estimate says how long it takes here.")


def reproduce(name: str, options: Options, console: Console) -> None:
    """Run what is missing of the chosen cells and show the whole table."""
    reproduction = Reproduction(find_recipe(name), options, console)
    check_data([run.experiment.data.name for run in reproduction.missing], options.data_root)
    make_folder(options.out)
    reproduction.compute()
    failures = reproduction.train()
    reproduction.show()
    if failures:
        raise RunError("\n".join(failures))


def estimate(name: str, options: Options, console: Console) -> None:
    """Say how long the chosen cells take on this machine; nothing is run."""
    Reproduction(find_recipe(name), options, console).estimate()


def planned(cells: Sequence[Cell], options: Options) -> list[PlannedRun]:
    """Return every run of the cells, one for each seed; cells that share an experiment share its runs."""
    changes = dict(parse_override(change) for change in options.changes)
    for key in ("seed", "algorithm.name", "data.name"):
        if key in changes:
            raise InputError(f"--set {key}: is not allowed: the recipe sets it; choose with --only and --seeds")
    for key, own in {"rounds": options.rounds, "data.part": options.part}.items():
        if key in changes and own is not None:
            raise InputError(f"--set {key}: is not allowed together with --{key.removeprefix('data.')}")
    runs = []
    for cell in cells:
        for seed in options.seeds if cell.experiment is not None else ():
            assert cell.experiment is not None
            try:
                runs.append(PlannedRun(cell, _experiment(cell.experiment, seed, options, changes)))
            except InputError as error:
                raise InputError(f"{error} (in {cell.label})") from error
    return runs


def _experiment(paper: Experiment, seed: int, options: Options, changes: Mapping[str, Any]) -> Experiment:
    """Return the experiment of a cell as it is run here."""
    own: dict[str, Any] = {"seed": seed, "data.root": str(options.data_root), **changes}
    if options.rounds is not None and find_algorithm(paper.algorithm["name"]).federates:
        own["rounds"] = options.rounds
    if options.part is not None:
        own["data.part"] = options.part
    return paper.override(own)


def _valid_runs(cell: Cell, options: Options) -> list[PlannedRun]:
    """Return the runs of a cell; none if `--set` does not fit its method."""
    try:
        return planned([cell], options)
    except InputError:
        return []


class Reproduction:
    """A recipe in progress: its cells, the finished runs, and the table as it is now."""

    def __init__(self, recipe: Recipe, options: Options, console: Console) -> None:
        self.recipe = recipe
        self.table = table_of(recipe)
        self.options = options
        self.console = console
        chosen = select(self.table.cells, options.only)
        if not chosen:
            raise InputError(f"--only: {','.join(options.only)} leaves no cell of {self.table.name}")
        self.chosen = {cell.key for cell in chosen}
        self.plan = planned(chosen, options)
        callbacks = isinstance(self.table, TrainedTable) and self.table.callbacks
        if callbacks and options.jobs > 1:
            raise InputError(
                f"--jobs: must be 1 for {self.table.name}, which records while training (got {options.jobs})"
            )
        self.store = Store(options.out / self.table.name if callbacks else options.out)
        self.cell_runs = [(cell, _valid_runs(cell, options)) for cell in self.table.cells]
        self.finished: dict[str, Run] = {}
        for _, runs in self.cell_runs:
            for run in runs:
                self._read(run)
        self.distinct = {run.fingerprint: run for run in reversed(self.plan)}  # the first of the cells that share it
        self.missing = [run for key, run in reversed(self.distinct.items()) if key not in self.finished]
        self._computed: Mapping[Key, Ours] = {}
        self._evaluated: dict[tuple[Key, int], Ours | None] = {}

    def _read(self, run: PlannedRun) -> None:
        """Read a run from disk if it is finished and not known yet."""
        if run.fingerprint not in self.finished and (found := self.store.finished(run.experiment)) is not None:
            self.finished[run.fingerprint] = found

    def compute(self) -> None:
        """Compute the chosen numbers that are not trained."""
        if isinstance(self.table, UntrainedTable):
            chosen = [cell for cell in self.table.cells if cell.key in self.chosen]
            self._computed = self.table.compute(chosen, self.options.data_root)

    def train(self) -> list[str]:
        """Train the missing runs; a failure (a diverged run, say) does not stop the others. Return the failures."""
        from fedsol.training.progress import progress

        planned_runs = {run.label: run for run in self.missing}
        runs = [
            run_many.Cell(label, run.experiment, self.store.place_for(run.experiment))
            for label, run in planned_runs.items()
        ]
        started = iter(range(1, len(runs) + 1))
        paths = {run.label: run.path for run in runs}

        def callbacks(label: str) -> list[Callback]:
            self._say(f"{next(started)}/{len(runs)} {label}: {paths[label]}")
            own = self.table.callbacks if isinstance(self.table, TrainedTable) else None
            recorders = own(planned_runs[label].experiment, paths[label]) if own else ()
            return [progress(self.console, label, lines=4), *recorders]

        failures = []
        try:
            for outcome in run_many.run_cells(runs, callbacks, True, self.options.jobs):
                label = outcome.cell.label
                if outcome.failure is not None:
                    failures.append(outcome.failure)
                elif self.options.jobs > 1:
                    self._say(f"{next(started)}/{len(runs)} {label}: {paths[label]}")
                self._read(planned_runs[label])
                self.write()
        except KeyboardInterrupt:
            self._say(f"\nSaved in {self.store.folder}. Continue with the same command.")
            raise
        return failures

    def ours(self) -> dict[Key, Ours]:
        """Return our numbers: those of all finished runs, chosen this time or not."""
        found = dict(self._computed)
        # The chosen ones first: what is made for them may be all that another cell takes.
        for cell, runs in sorted(self.cell_runs, key=lambda pair: pair[0].key not in self.chosen):
            finished = [self.finished[run.fingerprint] for run in runs if run.fingerprint in self.finished]
            ours = self._evaluate(cell, finished) if finished else None
            if ours is not None:
                found[cell.key] = ours
        return found

    def _evaluate(self, cell: Cell, finished: Sequence[Run]) -> Ours | None:
        """Return the number of a cell, evaluated again only when another run is finished."""
        assert isinstance(self.table, TrainedTable)
        evaluation, chosen = self.table.evaluation, cell.key in self.chosen
        if not chosen:  # only what takes no more work
            finished = [run for run in finished if evaluation.remaining_work(cell, run.experiment, run.path) is None]
        key = cell.key, len(finished)
        if key not in self._evaluated:
            try:
                self._evaluated[key] = evaluation.number(cell, finished, self.console) if finished else None
            except KeyboardInterrupt:
                self._say("\nFinished work is saved. Continue with the same command.")
                raise
            except InputError as error:
                if chosen:
                    raise
                self._say(f"{cell.label}: left blank: {error}")
                self._evaluated[key] = None
        return self._evaluated[key]

    def write(self, lines: Sequence[str] = ()) -> dict[Key, Ours]:
        """Write the table as it is now, so that a killed command leaves one too; `lines` describe a figure."""
        ours = self.ours()
        page = as_markdown(self.table, ours) + "".join(f"- {line}\n" for line in lines)
        write_atomically(self._file(".md"), page)
        content = {**as_rows(self.table, ours), "environment": environment()}
        write_atomically(self._file(".json"), json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        return ours

    def show(self) -> None:
        """Print the chosen part of the table, and draw the pictures of a figure."""
        ours = self.write()
        show(self.console, self.table, ours, self.chosen)
        for line in self._without_effect():
            self._say(line)
        files = [self._file(".md"), self._file(".json")]
        if isinstance(self.recipe, Figure) and ours:
            self._say("Drawing …")
            drawn = self.recipe.draw(self.table.cells, ours, Folders(self.options.data_root, self.options.out))
            for line in drawn.lines:
                self._say(line)
            self.write(drawn.lines)
            files += drawn.files
        self._say(f"Written: {', '.join(map(str, files))}")

    def _without_effect(self) -> list[str]:
        """Return a line about options that were given for a recipe that trains nothing."""
        given = {
            "--rounds": self.options.rounds is not None,
            "--part": self.options.part is not None,
            "--seeds": tuple(self.options.seeds) != SEEDS,
            "--set": bool(self.options.changes),
            "--jobs": self.options.jobs != 1,
        }
        named = [option for option, is_given in given.items() if is_given]
        if not named or isinstance(self.table, TrainedTable):
            return []
        return [f"Nothing is trained here: without effect are {', '.join(named)}."]

    def estimate(self) -> None:
        """Print how long the missing runs and their evaluation take on this machine."""
        from fedsol.paper.estimate import estimate
        from fedsol.studies.estimate import show_seconds

        if not self.plan:
            self._say("Nothing is trained here, and it takes minutes at most. Nothing was run.")
            return
        federated = [
            run.experiment for run in self.missing if find_algorithm(run.experiment.algorithm["name"]).federates
        ]
        evaluation = self._remaining_work()
        if not self.missing and not evaluation:
            self._say(f"{len(self.distinct)} runs, all of them made already. Nothing was run.")
            return
        seconds = estimate([*federated, *evaluation], self._say)
        also = f"; {len(evaluation)} times a model for every client" if evaluation else ""
        self._say(
            f"{len(self.distinct)} runs, {len(self.missing)} still to be made{also}: "
            f"about {show_seconds(sum(seconds))} on this machine. Nothing was run."
        )

    def _remaining_work(self) -> list[Experiment]:
        """Return what is as much work as evaluating the runs; cells of one method and run share it."""
        assert isinstance(self.table, TrainedTable)
        found: dict[tuple[str, str], Experiment] = {}
        for run in self.plan:
            work = self.table.evaluation.remaining_work(run.cell, run.experiment, self.store.begun(run.experiment))
            if work is not None:
                found[run.cell.facts["method"], run.fingerprint] = work
        return list(found.values())

    def _file(self, suffix: str) -> Path:
        return self.options.out / f"{self.table.name}{suffix}"

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)
