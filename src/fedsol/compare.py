"""Several algorithms on the same experiment, over several seeds: one table and one picture."""

import json
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsol.algorithms import complete_table
from fedsol.errors import InputError
from fedsol.experiment import Experiment, parse_override
from fedsol.files import write_atomically
from fedsol.runs import Run, RunDirectory
from fedsol.training import Callback, train


@dataclass(frozen=True)
class Variant:
    """An algorithm with some of its settings, under the name it has in the table."""

    label: str
    table: dict[str, Any]

    @property
    def folder(self) -> str:
        """The label as a folder's name."""
        return re.sub(r"[^\w.=-]+", "_", self.label)


@dataclass(frozen=True)
class Result:
    """The runs of one variant, one per seed."""

    variant: Variant
    runs: list[Run]

    def spread(self, value: Callable[[Run], float | None]) -> tuple[float, float]:
        """Mean and sample standard deviation over the seeds (0 for a single seed)."""
        values = [found for run in self.runs if (found := value(run)) is not None]
        return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def parse_variants(texts: Sequence[str], base: dict[str, Any]) -> list[Variant]:
    """`fedavg,fedsol` or `fedsol:rho=1.5,perturb=all`, as given to `fedsol compare -a`.

    A variant of the experiment's own algorithm starts from the experiment's settings (`base`).
    """
    variants = [_variant(part, base) for text in texts for part in _split_variants(text)]
    labels = [variant.label for variant in variants]
    if len(set(labels)) < len(labels):
        raise InputError(f"--algorithm: {', '.join(labels)} names one twice")
    if not variants:
        raise InputError("--algorithm: at least one is needed")
    return variants


def _split_variants(text: str) -> list[str]:
    """`a,b:x=1,y=2,c` is `a`, `b:x=1,y=2` and `c`: a part without a name of its own belongs to the one before."""
    variants: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        is_setting = "=" in part and ":" not in part.partition("=")[0]
        if is_setting and variants:
            variants[-1] += f",{part}"
        else:
            variants.append(part)
    return variants


def _variant(text: str, base: dict[str, Any]) -> Variant:
    """A name (which may be `module:Class`), or `name:key=value,…`."""
    name, colon, settings = text.partition("=")[0].rpartition(":") if "=" in text else (text, "", "")
    if colon:
        settings = text[len(name) + 1 :]
    elif "=" in text:
        raise InputError(f"--algorithm: {text!r} is not allowed: must be NAME or NAME:key=value,…")
    table = dict(base) if name == base["name"] else {"name": name}
    table |= dict(parse_override(part) for part in settings.split(",") if part)
    return Variant(text, complete_table(table))


def parse_seeds(text: str) -> list[int]:
    """`0,1,2`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise InputError(f"--seeds: {text!r} is not allowed: must be different whole numbers such as 0,1,2")
    return [int(part) for part in parts]


def compare(
    experiment: Experiment,
    variants: Sequence[Variant],
    seeds: Sequence[int],
    out: Path,
    watch: Callable[[str], Sequence[Callback]] = lambda _: (),
    resume: bool = False,
) -> list[Result]:
    """Runs every variant with every seed below `out`; `watch` gives the callbacks of a run by its label.

    The runs of one seed share the partition, the initial weights and the sampled clients.
    """
    cells = [(variant, seed, out / variant.folder / f"seed-{seed}") for variant in variants for seed in seeds]
    if not resume and (taken := [path for _, _, path in cells if RunDirectory(path).exists]):
        raise InputError(f"{taken[0]}: holds a run already; resume (--resume) or choose another directory (--out)")
    runs: dict[str, list[Run]] = {variant.label: [] for variant in variants}
    for variant, seed, path in cells:
        cell = experiment.model_copy(update={"seed": seed, "algorithm": variant.table})
        runs[variant.label].append(train(cell, watch(f"{variant.label} seed {seed}"), path, resume))
    results = [Result(variant, runs[variant.label]) for variant in variants]
    write_atomically(out / "comparison.json", json.dumps(as_rows(results, seeds), indent=2) + "\n")
    return results


def as_rows(results: Sequence[Result], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The table of a comparison as plain values."""
    rows = []
    for result in results:
        final, best = (
            result.spread(lambda run: run.final_accuracy),
            result.spread(lambda run: run.best_accuracy),
        )
        rows.append(
            {
                "label": result.variant.label,
                "algorithm": result.variant.table,
                "seeds": list(seeds),
                "final_accuracy": {"mean": final[0], "std": final[1]},
                "best_accuracy": {"mean": best[0], "std": best[1]},
                "seconds": sum(row["seconds"] for run in result.runs for row in run.rows),
            }
        )
    return rows


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
    ]
    draw_curves(curves, path, title=title)
