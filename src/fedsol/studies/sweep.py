"""Sweeps: every point of a grid over seeds, as one table."""

import csv
import functools
import io
import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.config.task import Measure
from fedsol.core.files import write_atomically
from fedsol.studies.compare import Result, Results, as_rows, run_variants
from fedsol.studies.grid import Axis, grid_variants
from fedsol.studies.run_many import Study


@dataclass(frozen=True, repr=False)
class Sweep(Results):
    """The results of all points of a grid."""

    keys: tuple[str, ...]
    seeds: tuple[int, ...]
    results: tuple[Result, ...]

    @property
    def primary(self) -> Measure:
        """The metric that is compared."""
        return self.results[0].primary

    def settings(self, result: Result) -> dict[str, Any]:
        """Return the values of the grid's keys at a point."""
        tables = result.variant.experiment.model_dump()
        return {key: functools.reduce(operator.getitem, key.split("."), tables) for key in self.keys}

    def rows(self) -> list[dict[str, Any]]:
        """Return the table as plain values."""
        rows = as_rows(self.results, self.seeds)
        return [{"settings": self.settings(result), **row} for result, row in zip(self.results, rows, strict=True)]


def sweep(axes: Sequence[Axis], base: Experiment, study: Study) -> Sweep:
    """Run the whole grid and write the table."""
    results = run_variants(grid_variants(axes, base), study)
    return write_sweep(axes, results, study)


def write_sweep(axes: Sequence[Axis], results: Sequence[Result], study: Study) -> Sweep:
    """Write `sweep.json` and `sweep.csv`, and return their content."""
    found = Sweep(tuple(axis.key for axis in axes), tuple(study.seeds), tuple(results))
    rows = found.rows()
    write_atomically(study.out / "sweep.json", json.dumps(rows, indent=2) + "\n")
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    columns = {"final": f"final_{found.primary.key}", "best": f"best_{found.primary.key}"}
    if any(f"held_out_{found.primary.key}" in row for row in rows):
        columns["held_out"] = f"held_out_{found.primary.key}"
    if any("best_validation" in row for row in rows):
        columns["validation"] = "best_validation"
    statistics = ("mean", "std")
    names = [f"{name}_{statistic}" for name in columns for statistic in statistics]
    table.writerow([*found.keys, "seeds", *names, "seconds", "failures"])
    for row in rows:
        spreads = [row.get(name) or {} for name in columns.values()]
        numbers = [f"{spread[key]:.6f}" if spread else "" for spread in spreads for key in statistics]
        finished = len(row["seeds"]) - len(row["failures"])
        settings = row["settings"].values()
        table.writerow([*settings, finished, *numbers, f"{row['seconds']:.1f}", len(row["failures"])])
    write_atomically(study.out / "sweep.csv", text.getvalue())
    return found
