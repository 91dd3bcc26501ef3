"""Sweeps: the product of a grid and seeds, as one table and one picture."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.core.files import write_atomically
from fedsol.errors import InputError
from fedsol.studies.compare import Result, as_rows, run_variants
from fedsol.studies.grids import Axis, grid_variants
from fedsol.studies.run_many import Outcome


@dataclass(frozen=True)
class Point:
    """A place of the grid with what came of its runs."""

    settings: dict[str, Any]
    result: Result


@dataclass(frozen=True)
class Sweep:
    """All places of the grid."""

    keys: tuple[str, ...]
    seeds: tuple[int, ...]
    points: tuple[Point, ...]

    def rows(self) -> list[dict[str, Any]]:
        """The table as plain values."""
        rows = as_rows([point.result for point in self.points], self.seeds)
        return [{"settings": point.settings, **row} for point, row in zip(self.points, rows, strict=True)]


def sweep(
    axes: Sequence[Axis],
    base: Experiment,
    seeds: Sequence[int],
    out: Path,
    resume: bool = False,
    jobs: int | None = None,
    tell: Callable[[Outcome], None] = lambda _: None,
) -> Sweep:
    """Runs the whole grid below `out`, several runs at a time where that is faster, and writes the table."""
    variants = grid_variants(axes, base)
    refuse_alike([variant.folder for variant in variants])
    results = run_variants(variants, seeds, out, resume=resume, jobs=jobs, tell=tell)
    keys = tuple(axis.key for axis in axes)
    found = Sweep(
        keys, tuple(seeds), tuple(Point({key: setting(result, key) for key in keys}, result) for result in results)
    )
    write_tables(found, out)
    return found


def refuse_alike(folders: Sequence[str]) -> None:
    """Two places of a grid must not share a directory."""
    if alike := [folder for number, folder in enumerate(folders) if folder in folders[:number]]:
        raise InputError(f"--grid: two of its values cannot be told apart ({alike[0]})")


def setting(result: Result, key: str) -> Any:
    """The value of a dotted key in a variant's experiment."""
    value: Any = result.variant.experiment.model_dump()
    for part in key.split("."):
        value = value[part]
    return value


def write_tables(found: Sweep, out: Path) -> None:
    """`sweep.json` and `sweep.csv`."""
    rows = found.rows()
    write_atomically(out / "sweep.json", json.dumps(rows, indent=2) + "\n")
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*found.keys, "seeds", "final_mean", "final_std", "best_mean", "best_std", "seconds", "failures"])
    for row in rows:
        spreads = [number for name in ("final_accuracy", "best_accuracy") for number in _numbers(row[name])]
        done = len(row["seeds"]) - len(row["failures"])
        settings = [row["settings"][key] for key in found.keys]
        table.writerow([*settings, done, *spreads, f"{row['seconds']:.1f}", len(row["failures"])])
    write_atomically(out / "sweep.csv", text.getvalue())


def _numbers(spread: Mapping[str, float] | None) -> list[str]:
    return ["", ""] if spread is None else [f"{spread['mean']:.6f}", f"{spread['std']:.6f}"]
