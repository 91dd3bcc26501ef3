"""`fedsol reproduce`: runs the cells of a recipe, resumably, and shows the table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedsol.algorithms import find_algorithm
from fedsol.config.experiment import Experiment
from fedsol.config.overrides import parse_override
from fedsol.core.files import write_atomically
from fedsol.errors import InputError, RunError
from fedsol.paper.needs import check_data
from fedsol.paper.numbers import Key
from fedsol.paper.printing import as_markdown, show
from fedsol.paper.recipe import Cell, FinishedRun, Folders, Ours, Recipe
from fedsol.paper.registry import find_recipe, recipes
from fedsol.paper.results import as_rows, ours_of
from fedsol.paper.selection import select
from fedsol.paper.setting import SEEDS
from fedsol.paper.store import Store, fingerprint, make_folder
from fedsol.runs.directory import RunDirectory
from fedsol.runs.environment import environment


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
    estimate: bool = False


@dataclass(frozen=True)
class Planned:
    """One run of a cell."""

    cell: Cell
    experiment: Experiment

    @property
    def label(self) -> str:
        """For people."""
        return f"{label_of(self.cell)}, seed {self.experiment.seed}"


def list_recipes(console: Console) -> None:
    """`fedsol reproduce list`."""
    table = Table(title="recipes", title_justify="left")
    for column in ("name", "kind", "what", "cells", "data"):
        table.add_column(column, overflow="fold", no_wrap=column in ("name", "kind"))
    for recipe in recipes().values():
        cells = [cell for cell in recipe.cells() if not cell.extra]
        data = dict.fromkeys(cell.dataset for cell in cells if cell.dataset)
        table.add_row(recipe.name, recipe.kind, recipe.title, str(len(cells)), ", ".join(data) or "none")
    console.print(table)
    console.print("A cell is run with 3 seeds. fedsol reproduce NAME --estimate says how long it takes here.")


def reproduce(name: str, options: Options, console: Console) -> None:
    """Runs what is not there yet of the chosen cells, one after the other, and shows the whole table."""
    recipe = find_recipe(name)
    cells = recipe.cells()
    chosen = select(cells, options.only)
    if not chosen:
        raise InputError(f"--only: {','.join(options.only)} leaves no cell of {name}")
    plan = planned(chosen, options)
    reproduction = Reproduction(recipe, cells, chosen, options, console)
    distinct = {fingerprint(run.experiment): run for run in reversed(plan)}  # the first of the cells that share it
    todo = [run for run in reversed(distinct.values()) if reproduction.store.finished(run.experiment) is None]
    if options.estimate:
        _estimate(recipe, plan, todo, len(distinct), reproduction.store, console)
        return
    check_data([run.experiment.data.name for run in todo], options.data_root)
    make_folder(options.out)
    if recipe.measure:
        untrained = [cell for cell in chosen if cell.experiment is None]
        reproduction.measured = dict(recipe.measure(untrained, options.data_root))
    failures = reproduction.train(todo)
    reproduction.show()
    if failures:
        raise RunError("\n".join(failures))


def planned(cells: Sequence[Cell], options: Options) -> list[Planned]:
    """Every run of the cells, one for each seed; cells that share an experiment share its runs."""
    changes = dict(parse_override(change) for change in options.changes)
    for key in ("seed", "algorithm.name", "data.name"):
        if key in changes:
            raise InputError(f"--set {key}: is not allowed: the recipe says it; choose with --only and --seeds")
    for key, own in {"rounds": options.rounds, "data.part": options.part}.items():
        if key in changes and own is not None:
            raise InputError(f"--set {key}: is not allowed together with --{key.removeprefix('data.')}")
    runs = []
    for cell in cells:
        for seed in options.seeds if cell.experiment is not None else ():
            assert cell.experiment is not None
            try:
                runs.append(Planned(cell, actual(cell.experiment, seed, options, changes)))
            except InputError as error:
                raise InputError(f"{error} (in {label_of(cell)})") from error
    return runs


def label_of(cell: Cell) -> str:
    """For people."""
    return ", ".join(part for part in cell.key if part)


def actual(paper: Experiment, seed: int, options: Options, changes: Mapping[str, Any]) -> Experiment:
    """The experiment of a cell as it is to be run here."""
    own: dict[str, Any] = {"seed": seed, "data.root": str(options.data_root), **changes}
    if options.rounds is not None and find_algorithm(paper.algorithm["name"]).federates:
        own["rounds"] = options.rounds
    if options.part is not None:
        own["data.part"] = options.part
    return paper.override(own)


def possible(cell: Cell, options: Options) -> list[Planned]:
    """The runs of a cell; none if what was set does not go with its method."""
    try:
        return planned([cell], options)
    except InputError:
        return []


class Reproduction:
    """A recipe under way: its cells, the runs that are there, and the table as it is now."""

    def __init__(
        self, recipe: Recipe, cells: Sequence[Cell], chosen: Sequence[Cell], options: Options, console: Console
    ) -> None:
        self.recipe = recipe
        self.cells = cells
        self.chosen = {cell.key for cell in chosen}
        self.options = options
        self.console = console
        self.store = Store(options.out / recipe.name if recipe.watch else options.out)
        self.measured: Mapping[Key, Ours] = {}
        self._worth: dict[tuple[Key, int], Ours | None] = {}
        self._runs = [(cell, possible(cell, options)) for cell in cells]

    def train(self, todo: Sequence[Planned]) -> list[str]:
        """Trains run after run; one that fails (diverges, say) does not keep the others from being made."""
        from fedsol.training.loop import train
        from fedsol.training.progress import progress

        failures = []
        for number, run in enumerate(todo, 1):
            place = self.store.place_for(run.experiment)
            self._say(f"{number}/{len(todo)} {run.label}: {place}")
            try:
                watching = self.recipe.watch(run.experiment, place) if self.recipe.watch else []
                callbacks = [progress(self.console, run.label, lines=4), *watching]
                train(run.experiment, callbacks, place, resume=RunDirectory(place).exists)
            except RunError as error:
                failures.append(f"{run.label}: {error}")
            except KeyboardInterrupt:
                self._say(f"\nSaved in {place}. Go on with the same command.")
                raise
            self.write()
        return failures

    def ours(self) -> dict[Key, Ours]:
        """Our numbers: those of the runs that are finished, also of cells that were not chosen this time."""
        found = dict(self.measured)
        # The chosen ones first: what is made for them may be all that another cell needs.
        for cell, runs in sorted(self._runs, key=lambda pair: pair[0].key not in self.chosen):
            finished = [run for run in (self.store.finished(run.experiment) for run in runs) if run is not None]
            if cell.key not in self.chosen:
                finished = [run for run in finished if self._is_evaluated(cell, run)]
            ours = self._worth_of(cell, finished) if finished else None
            if ours is not None:
                found[cell.key] = ours
        return found

    def _is_evaluated(self, cell: Cell, run: FinishedRun) -> bool:
        """Whether it takes no more work to know what a run is worth."""
        if self.recipe.evaluate is None:
            return True
        return self.recipe.afterwards is not None and self.recipe.afterwards(cell, run.experiment, run.path) is None

    def _worth_of(self, cell: Cell, finished: Sequence[FinishedRun]) -> Ours | None:
        """What runs are worth; asked again only when another one is finished."""
        if self.recipe.evaluate is None:
            return ours_of(cell, finished)
        place = cell.key, len(finished)
        if place not in self._worth:
            try:
                self._worth[place] = self.recipe.evaluate(cell, finished, self.console)
            except KeyboardInterrupt:
                self._say("\nWhat is done is kept. Go on with the same command.")
                raise
            except InputError as error:
                if cell.key in self.chosen:
                    raise
                self._say(f"{label_of(cell)}: left blank: {error}")
                self._worth[place] = None
        return self._worth[place]

    def write(self, lines: Sequence[str] = ()) -> dict[Key, Ours]:
        """Writes the table as it is now, so that a killed command leaves one too; `lines` say what a figure shows."""
        ours = self.ours()
        page = as_markdown(self.recipe, self.cells, ours) + "".join(f"- {line}\n" for line in lines)
        write_atomically(self._file(".md"), page)
        content = {**as_rows(self.recipe, self.cells, ours), "environment": environment()}
        write_atomically(self._file(".json"), json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        return ours

    def show(self) -> None:
        """The table on the terminal, as far as it was chosen, and the pictures of a figure."""
        ours = self.write()
        show(self.console, self.recipe, self.cells, ours, self.chosen)
        for line in self._without_effect():
            self._say(line)
        files = [self._file(".md"), self._file(".json")]
        if self.recipe.draw and ours:
            self._say("Drawing …")
            drawn = self.recipe.draw(self.cells, ours, Folders(self.options.data_root, self.options.out))
            for line in drawn.lines:
                self._say(line)
            self.write(drawn.lines)
            files += drawn.files
        self._say(f"Written: {', '.join(map(str, files))}")

    def _without_effect(self) -> list[str]:
        """Options that were given for a recipe that trains nothing."""
        given = {
            "--rounds": self.options.rounds is not None,
            "--part": self.options.part is not None,
            "--seeds": tuple(self.options.seeds) != SEEDS,
            "--set": bool(self.options.changes),
        }
        named = [option for option, is_given in given.items() if is_given]
        if not named or any(cell.experiment is not None for cell in self.cells):
            return []
        return [f"Nothing is trained here: without effect are {', '.join(named)}."]

    def _file(self, suffix: str) -> Path:
        return self.options.out / f"{self.recipe.name}{suffix}"

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def _estimate(
    recipe: Recipe, plan: Sequence[Planned], todo: Sequence[Planned], runs: int, store: Store, console: Console
) -> None:
    from fedsol.paper.estimate import estimate
    from fedsol.studies.estimate.units import show_seconds

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    if not plan:
        say("Nothing is trained here, and it takes minutes at most. Nothing was run.")
        return
    federated = [run.experiment for run in todo if find_algorithm(run.experiment.algorithm["name"]).federates]
    afterwards = _afterwards(recipe, plan, store)
    if not todo and not afterwards:
        say(f"{runs} runs, all of them made already. Nothing was run.")
        return
    seconds = estimate([*federated, *afterwards], say)
    also = f"; {len(afterwards)} times a model for every client" if afterwards else ""
    say(
        f"{runs} runs, {len(todo)} still to be made{also}: about {show_seconds(sum(seconds))} on this machine. "
        "Nothing was run."
    )


def _afterwards(recipe: Recipe, plan: Sequence[Planned], store: Store) -> list[Experiment]:
    """What is as much work as evaluating the runs; cells of one method and run share it."""
    found: dict[tuple[str, str], Experiment] = {}
    for run in plan if recipe.afterwards else ():
        assert recipe.afterwards is not None
        work = recipe.afterwards(run.cell, run.experiment, store.begun(run.experiment))
        if work is not None:
            found[run.cell.facts["method"], fingerprint(run.experiment)] = work
    return list(found.values())
