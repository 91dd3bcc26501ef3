"""What `results/` holds: runs by group and name, and how they fit the cells of the paper's tables."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from fedsol.config.experiment import Experiment, read_toml
from fedsol.config.overrides import differing_keys, keys_without_effect
from fedsol.errors import InputError
from fedsol.paper.numbers import Key
from fedsol.paper.recipe import Accuracy, Cell, Ours
from fedsol.paper.store import fingerprint, flat, paper_setting
from fedsol.runs.find import runs_below
from fedsol.runs.rows import Row
from fedsol.runs.run import Run


@dataclass(frozen=True)
class Result:
    """A run at `group/name` or `group/name/seed-N`; those of a name are seeds of one experiment, of any length."""

    group: str
    name: str
    run: Run
    lent: bool = False
    """Whether it is shown in a group that is not its own."""

    @property
    def called(self) -> str:
        """The name of the run and its other seeds in all of `results/`."""
        return f"{self.group}/{self.name}"

    @property
    def experiment(self) -> Experiment:
        """The experiment of the run."""
        return self.run.experiment

    @property
    def rounds(self) -> int:
        """The number of finished rounds."""
        return len(self.run.rows)

    def until(self, rounds: int) -> "Result":
        """Return the run as it was after so many rounds."""
        return replace(self, run=Run(self.experiment, self.run.rows[:rounds], directory=self.run.path))


def read_results(folder: Path) -> list[Result]:
    """Return all runs below the folder, by name."""
    results: list[Result] = []
    for run in sorted(runs_below(folder), key=lambda run: run.path):
        group, name, *_ = run.path.relative_to(folder).parts
        result = Result(group, name, run)
        _check_seed(result, [other for other in results if (other.group, other.name) == (group, name)])
        results.append(result)
    return results


def _check_seed(result: Result, others: Sequence[Result]) -> None:
    """Refuse a run that is not another seed of its name: their mean would mean nothing."""
    run = result.experiment
    for other in (other.experiment for other in others):
        keys = [key for key in differing_keys(other, run) if key not in ("seed", "rounds")]
        if keys or other.seed == run.seed:
            what = f"differs in {', '.join(keys)} from" if keys else f"has the seed {run.seed} of"
            raise InputError(f"{result.run.path}: {what} another run of {result.group}/{result.name}")


def by_group(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Return the runs of every group."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.group, []).append(result)
    return groups


PAGES = ("results", "family")
"""The pages in docs/ that show groups; `page` in a group.toml names one that is not the first."""


@dataclass(frozen=True)
class Group:
    """Runs that are shown together; `about` is what they vary, where that is not the method."""

    name: str
    results: list[Result]
    about: str = ""


def read_groups(folder: Path, results: Sequence[Result], page: str) -> list[Group]:
    """Return the groups of a page, each with what its `group.toml` says: `about`, runs of other groups to show `also`.

    `[also]` has `name = "group/name"` or `"group/name/seed-0"`: what it is called here, and which it is. These are cut
    to the rounds of the own.
    """
    groups = []
    for group, own in by_group(results).items():
        file = folder / group / "group.toml"
        about, shown_on, also = _read_note(file) if file.is_file() else ("", PAGES[0], {})
        if shown_on != page:
            continue
        if taken := also.keys() & {result.name for result in own}:
            raise InputError(f"{file}: also: {min(taken)!r} is not allowed: the group has a run of that name")
        longest = max(result.rounds for result in own)
        lent = [
            replace(result.until(longest), group=group, name=name, lent=True)
            for name, other in also.items()
            for result in _named(results, other, file)
        ]
        groups.append(Group(group, [*own, *lent], about))
    return groups


def _read_note(file: Path) -> tuple[str, str, dict[str, str]]:
    """Return `about`, `page` and `also` of a group.toml."""
    note = read_toml(file)
    if unknown := sorted(note.keys() - {"about", "also", "page"}):
        raise InputError(f"{file}: unknown key {unknown[0]!r}; allowed: about, also, page")
    about, page, also = note.get("about", ""), note.get("page", PAGES[0]), note.get("also", {})
    if not isinstance(about, str):
        raise InputError(f"{file}: about: must be a text (got {about!r})")
    if page not in PAGES:
        raise InputError(f"{file}: page: must be one of {', '.join(PAGES)} (got {page!r})")
    if not isinstance(also, dict) or not all(isinstance(name, str) for name in also.values()):
        raise InputError(f'{file}: also: must have lines of the form "name" = "group/name" (got {also!r})')
    return about, page, also


def _named(results: Sequence[Result], name: str, file: Path) -> list[Result]:
    found = [result for result in results if name in (result.called, f"{result.called}/seed-{result.experiment.seed}")]
    if not found:
        raise InputError(f"{file}: also: there is no run {name!r}")
    return found


def at_common_rounds(results: Sequence[Result]) -> list[Result]:
    """Return every run as it was after the rounds that all runs of its group have: only these can be compared."""
    rounds = {group: min(result.rounds for result in own) for group, own in by_group(results).items()}
    return [result.until(rounds[result.group]) for result in results]


def at_common_tests(results: Sequence[Result]) -> list[Result]:
    """Return the runs of one group at their common rounds, tested only where all of them were."""
    cut = at_common_rounds(results)
    rounds = set.intersection(*map(_tested, cut))
    return [_tested_only(result, rounds) for result in cut]


def _tested(result: Result) -> set[int]:
    return {number for number, _ in result.run.accuracies}


def is_complete(result: Result) -> bool:
    """Return whether a run has all the rounds that the paper's have."""
    return result.rounds >= paper_setting(result.experiment).rounds


def _tested_only(result: Result, rounds: set[int]) -> Result:
    """Return the run as if it had been tested in these rounds alone."""
    if _tested(result) <= rounds:
        return result
    untested = {"test_accuracy": None, "test_loss": None, "class_accuracy": None}
    rows = [row if row["round"] in rounds else cast(Row, {**row, **untested}) for row in result.run.rows]
    return replace(result, run=Run(result.experiment, rows, directory=result.run.path))


NOT_THE_PAPERS = {
    "seed": 0,
    "rounds": 1,
    "data.part": 1.0,
    "engine.precision": "float32",
    "server.evaluate_every": 1,
    "server.evaluate_last": 1,
}
"""In what a run may differ from a cell of the paper; beside the number stands what differs."""


class Index:
    """Runs by what they have in common with the paper's."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._results: dict[str, list[Result]] = {}
        for result in results:
            self._results.setdefault(_setting_of_the_paper(result.experiment), []).append(result)

    def of(self, cell: Cell) -> list[Result]:
        """Return the runs of a cell. Of several names, most data, then most rounds, then most seeds count."""
        alike = self.alike(cell)
        most = max((_size(result) for result in alike), default=None)
        named: dict[str, list[Result]] = {}
        for result in alike:
            if _size(result) == most:
                named.setdefault(result.called, []).append(result)
        return max(named.values(), key=len, default=[])

    def alike(self, cell: Cell) -> list[Result]:
        """Return all runs in the setting of a cell."""
        return self._results.get(_setting_of_the_paper(cell.experiment), []) if cell.experiment else []

    def ours(self, cells: Sequence[Cell]) -> dict[Key, Ours]:
        """Return our numbers for the cells of a recipe."""
        found = {cell.key: Accuracy().number(cell, [result.run for result in self.of(cell)]) for cell in cells}
        return {key: ours for key, ours in found.items() if ours is not None}


_settings: dict[str, str] = {}
"""What was found before: a page asks for each of some hundred experiments several times."""


def _setting_of_the_paper(experiment: Experiment) -> str:
    complete = experiment.model_dump_json()
    if complete not in _settings:
        _settings[complete] = fingerprint(experiment.override(NOT_THE_PAPERS))
    return _settings[complete]


def _size(result: Result) -> tuple[float, int]:
    return result.experiment.data.part, result.rounds


def setting_of(experiment: Experiment) -> str:
    """Return the same text for runs that differ in method, seed, rounds, precision and tests alone."""
    left_out = {*keys_without_effect(experiment), *NOT_THE_PAPERS} - {"data.part"}
    values = flat(experiment).items()
    return json.dumps({key: value for key, value in values if key not in left_out and not key.startswith("algorithm.")})


@dataclass(frozen=True)
class ComputedTable:
    """A table whose numbers come from no training run."""

    numbers: Mapping[Key, Ours]
    environment: Mapping[str, Any]


def read_computed_tables(folder: Path) -> dict[str, ComputedTable]:
    """Return the tables whose numbers come from no training run, by recipe."""
    tables = {}
    for file in sorted((folder / "tables").glob("*.json")):
        content = json.loads(file.read_text(encoding="utf-8"))
        numbers = {
            (cell["block"], cell["row"], cell["column"]): Ours(
                cell["ours"]["mean"], cell["ours"]["std"], tuple(cell["differs"])
            )
            for cell in content["cells"]
            if cell["ours"]
        }
        tables[content["recipe"]] = ComputedTable(numbers, content["environment"])
    return tables
