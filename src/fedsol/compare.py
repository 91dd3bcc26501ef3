"""Several algorithms on the same data, over several seeds: one table and one picture."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsol.errors import InputError, RunError
from fedsol.files import write_atomically
from fedsol.runs import Run, RunDirectory
from fedsol.training import Callback, train
from fedsol.variants import Variant


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
    watch: Callable[[str], Sequence[Callback]] = lambda _: (),
    resume: bool = False,
) -> list[Result]:
    """Runs every variant with every seed below `out`; `watch` gives the callbacks of a run by its label.

    The runs of one seed share the partition, the initial weights and the sampled clients. A run that fails (because it
    diverges, say) does not keep the others from being made.
    """
    results = [Result(variant) for variant in variants]
    cells = [(result, seed, _folder(out, result.variant, seed)) for result in results for seed in seeds]
    if not resume and (taken := [path for _, _, path in cells if RunDirectory(path).exists]):
        raise InputError(f"{taken[0]}: holds a run already; resume (--resume) or choose another directory (--out)")
    for result, seed, path in cells:
        label = f"{result.variant.label} seed {seed}"
        try:
            result.runs.append(train(result.variant.experiment.override({"seed": seed}), watch(label), path, resume))
        except RunError as error:
            result.failures.append(f"{label}: {error}")
    write_atomically(out / "comparison.json", json.dumps(as_rows(results, seeds), indent=2) + "\n")
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
    from fedsol.report.curves import Curve, draw_curves

    curves = [
        Curve(
            result.variant.label,
            [row["round"] for row in result.runs[0].rows],
            [[row["test_accuracy"] for row in run.rows] for run in result.runs],
        )
        for result in results
        if result.runs
    ]
    draw_curves(curves, path, title=title)


def _folder(out: Path, variant: Variant, seed: int) -> Path:
    return out / variant.folder / f"seed-{seed}"
