"""Several algorithms on the same data, over several seeds: one table and one picture."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsol.config.overrides import flatten
from fedsol.config.task import Measure
from fedsol.core.files import write_atomically
from fedsol.core.statistics import sample_mean_std
from fedsol.runs.run import Run
from fedsol.studies.run_many import Outcome, RunSpec, Study, run_many
from fedsol.studies.variants import Variant

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Result:
    """The runs of one variant, one per seed, and the errors of those that failed."""

    variant: Variant
    runs: list[Run] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def primary(self) -> Measure:
        """The metric that is compared."""
        return self.variant.experiment.task.primary

    def spread(self, value: Callable[[Run], float | None]) -> dict[str, float] | None:
        """Return mean and sample standard deviation over the seeds (0 for one seed); None without a finished run."""
        found = sample_mean_std(map(value, self.runs))
        return found._asdict() if found else None


class Results:
    """Results over seeds as Python and notebooks show them: their runs, and a table."""

    results: tuple[Result, ...]
    seeds: tuple[int, ...]

    @property
    def runs(self) -> list[Run]:
        """Every run that finished."""
        return [run for result in self.results for run in result.runs]

    @property
    def table(self) -> "pandas.DataFrame":
        """A row per variant: the final and the best result, as mean and (of several seeds) standard deviation."""
        import pandas

        rows = [{"name": row.pop("label"), **flatten(row)} for row in as_rows(self.results, self.seeds)]
        table = pandas.DataFrame(rows).set_index("name")
        return table if len(self.seeds) > 1 else table.drop(columns=[name for name in table if name.endswith(".std")])

    def __repr__(self) -> str:
        return str(self._short_table.to_string())

    def _repr_html_(self) -> str:
        return str(self._short_table.to_html())

    @property
    def _short_table(self) -> "pandas.DataFrame":
        return self.table[[name for name in self.table if name.endswith(("mean", "std"))]]


def compare(variants: Sequence[Variant], study: Study) -> list[Result]:
    """Run every variant with every seed and write the table.

    The runs of one seed share the partition, the initial weights and the sampled clients.
    """
    results = run_variants(variants, study)
    write_atomically(study.out / "comparison.json", json.dumps(as_rows(results, study.seeds), indent=2) + "\n")
    return results


def run_variants(variants: Sequence[Variant], study: Study) -> list[Result]:
    """Run every variant with every seed. A run that fails does not stop the others."""
    specs = [
        RunSpec(
            f"{variant.label} seed {seed}",
            variant.experiment.override({"seed": seed}),
            study.out / variant.folder / f"seed-{seed}",
        )
        for variant in variants
        for seed in study.seeds
    ]
    outcomes: dict[Path, Outcome] = {}
    for outcome in run_many(specs, study.callbacks, study.resume, study.jobs, study.data):
        outcomes[outcome.spec.path] = outcome
        study.finished(outcome)
    ordered = [outcomes[spec.path] for spec in specs]
    results = []
    for number, variant in enumerate(variants):
        own = ordered[number * len(study.seeds) : (number + 1) * len(study.seeds)]
        runs, failures = [one.run for one in own if one.run], [one.failure for one in own if one.failure]
        results.append(Result(variant, runs, failures))
    return results


def as_rows(results: Sequence[Result], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Return the table of a comparison as plain values."""
    return [
        {
            "label": result.variant.label,
            "algorithm": result.variant.experiment.algorithm,
            "seeds": list(seeds),
            f"final_{result.primary.key}": result.spread(lambda run: run.final_result),
            f"best_{result.primary.key}": result.spread(lambda run: run.best_result),
            **_held_out(result),
            **_validation(result),
            "rounds": [len(run.rows) for run in result.runs],
            "seconds": sum(row["seconds"] for run in result.runs for row in run.rows),
            "failures": result.failures,
        }
        for result in results
    ]


def _held_out(result: Result) -> dict[str, Any]:
    """Return the final result on the clients' hold-out sets, if there are any."""
    found = result.spread(lambda run: run.final_held_out)
    return {f"held_out_{result.primary.key}": found} if found else {}


def _validation(result: Result) -> dict[str, Any]:
    """Return the best result on the validation set, if there is one."""
    if not result.variant.experiment.data.validation:
        return {}
    return {"best_validation": result.spread(lambda run: run.best_validation)}
