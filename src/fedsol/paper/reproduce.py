"""`fedsol reproduce`: run the cells of a recipe, resumably, and show the table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console

from fedsol.config.experiment import Experiment
from fedsol.config.overrides import parse_override
from fedsol.core.files import make_directory, write_atomically
from fedsol.errors import InputError, RunError
from fedsol.federation.sampling import trains_alone
from fedsol.paper.numbers import Key
from fedsol.paper.printing import as_json, as_markdown, show
from fedsol.paper.recipe import Accuracy, Cell, Figure, Folders, Ours, Recipe, TrainedTable, UntrainedTable, table_of
from fedsol.paper.registry import find_recipe
from fedsol.paper.selection import check_data, select
from fedsol.paper.settings import SEEDS
from fedsol.paper.store import Store, fingerprint
from fedsol.runs.environment import environment
from fedsol.runs.run import Run
from fedsol.studies.run_many import RunSpec, run_many
from fedsol.training.callbacks import Callback


@dataclass(frozen=True)
class Options:
    """The user's options, besides the recipe's name."""

    out: Path
    data_root: Path = Path("data")
    seeds: Sequence[int] = SEEDS
    rounds: int | None = None
    part: float | None = None
    only: Sequence[str] = ()
    changes: Sequence[str] = ()
    jobs: int = 1

    @cached_property
    def overrides(self) -> dict[str, Any]:
        """`--set` and `--part` as dotted keys."""
        changes = dict(parse_override(change) for change in self.changes)
        for key in ("seed", "algorithm.name", "data.name"):
            if key in changes:
                raise InputError(f"--set {key}: is not allowed: the recipe sets it; choose with --only and --seeds")
        for key, own in {"rounds": self.rounds, "data.part": self.part}.items():
            if key in changes and own is not None:
                raise InputError(f"--set {key}: is not allowed together with --{key.removeprefix('data.')}")
        part = {} if self.part is None else {"data.part": self.part}
        return {"data.root": str(self.data_root), **changes, **part}

    def experiments(self, cell: Cell) -> list[Experiment]:
        """Return the experiment of a cell as it is run here, for every seed; none for a cell that is not trained."""
        if cell.experiment is None:
            return []
        changes = self.overrides
        if self.rounds is not None and not trains_alone(cell.experiment):
            changes = {**changes, "rounds": self.rounds}
        try:
            return [cell.experiment.override({"seed": seed, **changes}) for seed in self.seeds]
        except InputError as error:
            raise InputError(f"{error} (in {cell.label})") from error

    def names_of_training(self) -> list[str]:
        """Return the given options that affect training."""
        given = {
            "--rounds": self.rounds is not None,
            "--part": self.part is not None,
            "--seeds": tuple(self.seeds) != SEEDS,
            "--set": bool(self.changes),
            "--jobs": self.jobs != 1,
        }
        return [name for name, is_given in given.items() if is_given]


def reproduce(name: str, options: Options, console: Console) -> None:
    """Run what is missing from the chosen cells and show the whole table."""
    reproduction = Reproduction(find_recipe(name), options, console)
    check_data([spec.experiment.data.name for spec in reproduction.missing.values()], options.data_root)
    make_directory(options.out)
    failures = reproduction.train()
    reproduction.show()
    if failures:
        raise RunError("\n".join(failures))


def estimate(name: str, options: Options, console: Console) -> None:
    """Say how long the chosen cells take on this machine; nothing is run."""
    Reproduction(find_recipe(name), options, console).estimate()


class Reproduction:
    """A recipe in progress: its cells, the finished runs, and the table as it is now."""

    def __init__(self, recipe: Recipe, options: Options, console: Console) -> None:
        self.recipe, self.table, self.options, self.console = recipe, table_of(recipe), options, console
        self._say = console.print
        self.chosen = {cell.key: cell for cell in select(self.table.cells, options.only)}
        if not self.chosen:
            raise InputError(f"--only: {','.join(options.only)} selects no cell of {self.table.name}")
        self.plan = {cell.key: self._runs(cell) for cell in self.table.cells}
        """The experiments of every cell by fingerprint; cells that share an experiment share its run."""
        self._callbacks = self.table.callbacks if isinstance(self.table, TrainedTable) else None
        if self._callbacks and options.jobs > 1:
            raise InputError(
                f"--jobs: must be 1 for {self.table.name}, which records data while training (got {options.jobs})"
            )
        self.store = Store(options.out / self.table.name if self._callbacks else options.out)
        every = {key: run for runs in self.plan.values() for key, run in runs.items()}
        self.finished = {key: found for key, run in every.items() if (found := self.store.finished(run))}
        self.wanted: dict[str, RunSpec] = {}
        """Every chosen run by fingerprint, finished or not."""
        for cell in self.chosen.values():
            for key, run in self.plan[cell.key].items():
                if key not in self.wanted:
                    self.wanted[key] = RunSpec(f"{cell.label}, seed {run.seed}", run, self.store.place_for(run))
        self.missing = {key: spec for key, spec in self.wanted.items() if key not in self.finished}
        self._evaluated: dict[tuple[Key, int], Ours | None] = {}

    def _runs(self, cell: Cell) -> dict[str, Experiment]:
        """Return the experiments of a cell; none if it is not chosen and `--set` does not fit its method."""
        try:
            return {fingerprint(run): run for run in self.options.experiments(cell)}
        except InputError:
            if cell.key in self.chosen:
                raise
            return {}

    def train(self) -> list[str]:
        """Train the missing runs; a failure (a diverged run, say) does not stop the others. Return the failures."""
        from fedsol.training.progress import progress

        specs = {spec.label: spec for spec in self.missing.values()}
        numbers = iter(range(1, len(specs) + 1))

        def announce(spec: RunSpec) -> None:
            self._say(f"{next(numbers)}/{len(specs)} {spec.label}: {spec.path}")

        def callbacks(label: str) -> list[Callback]:
            spec = specs[label]
            announce(spec)
            recorders = self._callbacks(spec.experiment, spec.path) if self._callbacks else ()
            return [progress(self.console, label, lines=4), *recorders]

        failures = []
        for outcome in run_many(list(specs.values()), callbacks, True, self.options.jobs):
            if outcome.failure is not None:
                failures.append(outcome.failure)
                continue
            if self.options.jobs > 1:
                announce(outcome.spec)
            # Not the outcome's own run, which may hold its weights.
            self.finished[fingerprint(outcome.spec.experiment)] = Run.load(outcome.spec.path)
            self.write(self.ours())  # so that a killed command also leaves a table
        return failures

    def ours(self) -> dict[Key, Ours]:
        """Return our numbers: the chosen ones that are not trained, or those of all finished runs, chosen or not."""
        if isinstance(self.table, UntrainedTable):
            return dict(self.table.compute(list(self.chosen.values()), self.options.data_root))
        # The chosen ones first: other cells may reuse what is made for them.
        cells = sorted(self.table.cells, key=lambda cell: cell.key not in self.chosen)
        return {cell.key: ours for cell in cells if (ours := self._evaluate(cell, self.table.evaluation))}

    def _evaluate(self, cell: Cell, evaluation: Accuracy) -> Ours | None:
        """Return the number of a cell, evaluated again only after another run has finished."""
        chosen = cell.key in self.chosen
        runs = [self.finished[key] for key in self.plan[cell.key] if key in self.finished]
        if not chosen:  # only what requires no more work
            runs = [run for run in runs if evaluation.remaining_work(cell, run.experiment, run.path) is None]
        key = cell.key, len(runs)
        if key not in self._evaluated:
            try:
                self._evaluated[key] = evaluation.number(cell, runs, self.console) if runs else None
            except InputError as error:
                if chosen:
                    raise
                self._say(f"{cell.label}: left blank: {error}")
                self._evaluated[key] = None
        return self._evaluated[key]

    def write(self, ours: Mapping[Key, Ours], lines: Sequence[str] = ()) -> list[Path]:
        """Write the table as Markdown and JSON; `lines` describe a figure.

        Both depend on the runs alone, which have their own environments, not on when or how often this is called.
        """
        page = as_markdown(self.table, ours) + "".join(f"- {line}\n" for line in lines)
        content = as_json(self.table, ours)
        if isinstance(self.table, UntrainedTable):
            content["environment"] = environment()
        files = [self.options.out / f"{self.table.name}.{kind}" for kind in ("md", "json")]
        write_atomically(files[0], page)
        write_atomically(files[1], json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        return files

    def show(self) -> None:
        """Print the chosen part of the table, and draw the pictures of a figure."""
        ours = self.ours()
        files = self.write(ours)
        show(self.console, self.table, ours, self.chosen)
        if isinstance(self.table, UntrainedTable) and (named := self.options.names_of_training()):
            self._say(f"Nothing is trained here; these options have no effect: {', '.join(named)}.")
        if isinstance(self.recipe, Figure) and ours:
            self._say("Drawing …")
            drawn = self.recipe.draw(self.table, ours, Folders(self.options.data_root, self.options.out))
            for line in drawn.lines:
                self._say(line)
            files = [*self.write(ours, drawn.lines), *drawn.files]
        self._say(f"Written: {', '.join(map(str, files))}")

    def estimate(self) -> None:
        """Print how long the missing runs and their evaluation take on this machine."""
        from fedsol.paper.estimate import estimate
        from fedsol.studies.estimate import show_seconds

        if isinstance(self.table, UntrainedTable):
            self._say("Nothing is trained here; it takes a few minutes at most. Nothing was run.")
            return
        evaluation = {  # as much work as evaluating the runs; cells of one method and run share it
            (cell.facts["method"], key): work
            for cell in self.chosen.values()
            for key, run in self.plan[cell.key].items()
            if (work := self.table.evaluation.remaining_work(cell, run, self.wanted[key].path))
        }
        if not self.missing and not evaluation:
            self._say(f"{len(self.wanted)} runs, all already finished. Nothing was run.")
            return
        federated = [spec.experiment for spec in self.missing.values() if not trains_alone(spec.experiment)]
        seconds = estimate([*federated, *evaluation.values()], self._say)
        also = f"; models for all clients × {len(evaluation)}" if evaluation else ""
        self._say(
            f"{len(self.wanted)} runs, {len(self.missing)} still to run{also}: "
            f"about {show_seconds(sum(seconds))} on this machine. Nothing was run."
        )
