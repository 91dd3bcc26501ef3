"""Several algorithms on the same data, over several seeds: one table and one picture."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsol.core.files import write_atomically
from fedsol.runs.run import Run
from fedsol.studies.run_many import Cell, Outcome, Watch, default_jobs, run_cells
from fedsol.studies.variants import Variant


@dataclass(frozen=True)
class Result:
    """What came of one variant: a run per seed, and why some failed."""

    variant: Variant
    runs: list[Run] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def spread(self, value: Callable[[Run], float | None]) -> dict[str, float] | None:
        """Mean and sample standard deviation over the seeds (0 for a single one); None if no run was finished."""
        values = [found for run in self.runs if (found := value(run)) is not None]
        if not values:
            return None
        return {"mean": statistics.fmean(values), "std": statistics.stdev(values) if len(values) > 1 else 0.0}


def compare(
    variants: Sequence[Variant],
    seeds: Sequence[int],
    out: Path,
    watch: Watch = lambda _: (),
    resume: bool = False,
    jobs: int = 1,
) -> list[Result]:
    """Runs every variant with every seed below `out`; `watch` gives the callbacks of a run by its label.

    The runs of one seed share the partition, the initial weights and the sampled clients. A run that fails (because it
    diverges, say) does not keep the others from being made.
    """
    results = run_variants(variants, seeds, out, watch, resume, jobs)
    write_atomically(out / "comparison.json", json.dumps(as_rows(results, seeds), indent=2) + "\n")
    return results


def run_variants(
    variants: Sequence[Variant],
    seeds: Sequence[int],
    out: Path,
    watch: Watch = lambda _: (),
    resume: bool = False,
    jobs: int | None = 1,
    tell: Callable[[Outcome], None] = lambda _: None,
) -> list[Result]:
    """Every variant with every seed, up to `jobs` runs at a time (None: as many as help); `tell` hears of each."""
    cells = {
        (number, seed): Cell(
            f"{variant.label} seed {seed}",
            variant.experiment.override({"seed": seed}),
            out / variant.folder / f"seed-{seed}",
        )
        for number, variant in enumerate(variants)
        for seed in seeds
    }
    every = list(cells.values())
    outcomes: dict[Path, Outcome] = {}
    for outcome in run_cells(every, watch, resume, default_jobs(every) if jobs is None else jobs):
        outcomes[outcome.cell.path] = outcome
        tell(outcome)
    results = []
    for number, variant in enumerate(variants):
        own = [outcomes[cells[number, seed].path] for seed in seeds]
        runs, failures = [one.run for one in own if one.run], [one.failure for one in own if one.failure]
        results.append(Result(variant, runs, failures))
    return results


def as_rows(results: Sequence[Result], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The table of a comparison as plain values."""
    return [
        {
            "label": result.variant.label,
            "algorithm": result.variant.experiment.algorithm,
            "seeds": list(seeds),
            "final_accuracy": result.spread(lambda run: run.final_accuracy),
            "best_accuracy": result.spread(lambda run: run.best_accuracy),
            "seconds": sum(row["seconds"] for run in result.runs for row in run.rows),
            "failures": result.failures,
        }
        for result in results
    ]


def draw(results: Sequence[Result], path: Path, title: str) -> None:
    """Writes the learning curves, with a band of one standard deviation over the seeds."""
    from fedsol.plots.curves import accuracy_curves, draw_curves

    curves, shown = accuracy_curves(
        [(result.variant.label, [run.rows for run in result.runs]) for result in results if result.runs]
    )
    draw_curves(curves, path, title=title, ylabel=shown)
