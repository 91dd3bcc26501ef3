"""What `results/` holds: runs by group and cell, and how they fit the cells of the paper's tables."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedsol.config.experiment import Experiment, read_toml
from fedsol.config.overrides import KEYS_WITHOUT_EFFECT, differing_keys
from fedsol.errors import InputError
from fedsol.paper.numbers import Key
from fedsol.paper.recipe import Accuracy, Cell, Ours
from fedsol.paper.store import fingerprint, flat
from fedsol.runs.run import Run


@dataclass(frozen=True)
class Kept:
    """A run with where it came from; `group` and `cell` are its folders (seeds of a cell stand beside each other)."""

    group: str
    cell: str
    run: Run
    environment: Mapping[str, Any]

    def until(self, rounds: int) -> "Kept":
        """The run as it stood after so many rounds."""
        return replace(self, run=Run(self.run.experiment, self.run.rows[:rounds], directory=self.run.path))


def read_kept(results: Path) -> list[Kept]:
    """All runs at `group/cell` or `group/cell/seed-N` below the folder, by name.

    Those of a cell are seeds of one experiment, of any number of rounds.
    """
    kept: list[Kept] = []
    files = [*results.glob("*/*/experiment.toml"), *results.glob("*/*/seed-*/experiment.toml")]
    for file in sorted(files):
        group, cell, *_ = file.parent.relative_to(results).parts
        environment = json.loads((file.parent / "environment.json").read_text(encoding="utf-8"))
        kept.append(Kept(group, cell, Run.load(file.parent), environment))
        _check_cell(kept[-1], [item for item in kept[:-1] if (item.group, item.cell) == (group, cell)])
    return kept


def _check_cell(item: Kept, others: Sequence[Kept]) -> None:
    """Refuses a run that is not another seed of its cell: their mean would mean nothing."""
    run = item.run.experiment
    for other in (other.run.experiment for other in others):
        keys = [key for key in differing_keys(other, run) if key not in ("seed", "rounds")]
        if keys or other.seed == run.seed:
            what = f"differs in {', '.join(keys)} from" if keys else f"has the seed {run.seed} of"
            raise InputError(f"{item.run.path}: {what} another run of {item.group}/{item.cell}")


def by_group(kept: Sequence[Kept]) -> dict[str, list[Kept]]:
    """The runs of every group."""
    groups: dict[str, list[Kept]] = {}
    for item in kept:
        groups.setdefault(item.group, []).append(item)
    return groups


@dataclass(frozen=True)
class Group:
    """Runs that are shown together; `about` is what they vary, where that is not the method."""

    name: str
    runs: list[Kept]
    about: str = ""


def read_groups(results: Path, kept: Sequence[Kept]) -> list[Group]:
    """The groups, each with what its `group.toml` says: `about`, and runs of other groups to show `also`.

    `[also]` has `cell = "group/cell"`: what it is called here, and which it is. These are cut to the rounds of the own.
    """
    groups = []
    for name, runs in by_group(kept).items():
        file = results / name / "group.toml"
        about, also = _read_note(file) if file.is_file() else ("", {})
        if taken := also.keys() & {item.cell for item in runs}:
            raise InputError(f"{file}: also: {min(taken)!r} is not allowed: the group has a run of that name")
        longest = max(len(item.run.rows) for item in runs)
        lent = [
            replace(item.until(longest), group=name, cell=cell)
            for cell, other in also.items()
            for item in _named(kept, other, file)
        ]
        groups.append(Group(name, [*runs, *lent], about))
    return groups


def _read_note(file: Path) -> tuple[str, dict[str, str]]:
    """`about` and `also` of a group.toml."""
    note = read_toml(file)
    if unknown := sorted(note.keys() - {"about", "also"}):
        raise InputError(f"{file}: {unknown[0]!r} is not allowed; allowed: about, also")
    about, also = note.get("about", ""), note.get("also", {})
    if not isinstance(about, str):
        raise InputError(f"{file}: about: {about!r} is not allowed; it must be a text")
    if not isinstance(also, dict) or not all(isinstance(name, str) for name in also.values()):
        raise InputError(f'{file}: also: {also!r} is not allowed; it must have lines of the form "name" = "group/cell"')
    return about, also


def _named(kept: Sequence[Kept], name: str, file: Path) -> list[Kept]:
    found = [item for item in kept if f"{item.group}/{item.cell}" == name]
    if not found:
        raise InputError(f"{file}: also: there is no run {name!r}")
    return found


def at_common_rounds(kept: Sequence[Kept]) -> list[Kept]:
    """Every run as it stood after the rounds that all runs of its group have, as only these can be compared."""
    rounds = {name: min(len(item.run.rows) for item in items) for name, items in by_group(kept).items()}
    return [item.until(rounds[item.group]) for item in kept]


class Index:
    """Runs by what they have in common with the paper's: all but seed, rounds and the part of the data."""

    def __init__(self, kept: Sequence[Kept]) -> None:
        self._kept: dict[str, list[Kept]] = {}
        for item in kept:
            plain = item.run.experiment.override({"seed": 0, "rounds": 1, "data.part": 1.0})
            self._kept.setdefault(fingerprint(plain), []).append(item)

    def of(self, cell: Cell) -> list[Kept]:
        """The runs of a cell. Where it was run in several ways, that with most data and then most rounds counts."""
        if cell.experiment is None:
            return []
        items = self._kept.get(fingerprint(cell.experiment.override({"seed": 0, "rounds": 1})), [])
        most = max((_size(item) for item in items), default=None)
        return [item for item in items if _size(item) == most]

    def ours(self, cells: Sequence[Cell]) -> dict[Key, Ours]:
        """Our numbers for the cells of a recipe."""
        found = {cell.key: Accuracy().number(cell, [item.run for item in self.of(cell)]) for cell in cells}
        return {key: ours for key, ours in found.items() if ours is not None}


def setting_of(experiment: Experiment) -> str:
    """The same for runs that differ in method, seed and rounds alone: those that a method is compared on."""
    left_out = {*KEYS_WITHOUT_EFFECT, "seed", "rounds"}
    values = flat(experiment).items()
    return json.dumps({key: value for key, value in values if key not in left_out and not key.startswith("algorithm.")})


def _size(item: Kept) -> tuple[float, int]:
    return item.run.experiment.data.part, len(item.run.rows)


@dataclass(frozen=True)
class Measured:
    """A table that was measured and not trained."""

    numbers: Mapping[Key, Ours]
    environment: Mapping[str, Any]


def read_measured(results: Path) -> dict[str, Measured]:
    """The measured tables, by recipe."""
    tables = {}
    for file in sorted((results / "tables").glob("*.json")):
        content = json.loads(file.read_text(encoding="utf-8"))
        numbers = {
            (cell["block"], cell["row"], cell["column"]): Ours(
                cell["ours"]["mean"], cell["ours"]["std"], tuple(cell["differs"])
            )
            for cell in content["cells"]
            if cell["ours"]
        }
        tables[content["recipe"]] = Measured(numbers, content["environment"])
    return tables
