"""`fedsol compare`: several algorithms over seeds, as a table and learning curves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsol.cli.console import console, counted, resume_hint, say, say_table, show_warnings
from fedsol.cli.options import (
    ExperimentArgument,
    JobsOption,
    LiveOption,
    OutOption,
    ResumeOption,
    RoundsOption,
    SeedsOption,
    SetOption,
    live_report,
    new_directory,
    read_experiment,
    shortcuts,
)
from fedsol.errors import RunError

if TYPE_CHECKING:
    from fedsol.config.task import Measure
    from fedsol.runs.run import Run
    from fedsol.studies.compare import Result
    from fedsol.studies.run_many import Outcome

BEST_OF_ANY = "of any round, chosen on the test set"
BEST_BY_VALIDATION = "of the round chosen by validation"


def compare(
    experiment: ExperimentArgument = None,
    algorithms: Annotated[
        list[str] | None,
        typer.Option("--algorithm", "-a", help="Such as fedavg,fedsol or fedsol:rho=1.5,perturb=all; repeatable."),
    ] = None,
    seeds: SeedsOption = "0,1,2",
    rounds: RoundsOption = None,
    changes: SetOption = None,
    out: OutOption = None,
    resume: ResumeOption = False,
    jobs: JobsOption = 1,
    live: LiveOption = False,
) -> None:
    """Compare algorithms over seeds on the same data: a table and learning curves."""
    from fedsol.plots.curves import draw_curves, has_values, result_curves
    from fedsol.studies import compare as comparison
    from fedsol.studies.run_many import Study
    from fedsol.studies.variants import parse_seeds, parse_variants
    from fedsol.training.progress import progress

    show_warnings()
    out = out or new_directory("compare")
    variants = parse_variants(
        algorithms or ["fedavg", "fedsol"], read_experiment(experiment, changes, shortcuts(rounds=rounds))
    )
    study = Study(out, parse_seeds(seeds), resume, jobs, lambda label: [progress(console, label, lines=2)])
    if jobs > 1:
        study = replace(study, finished=finished_counter(len(variants) * len(study.seeds)))
    with resume_hint(out, f"the same command, --out {out} and --resume"), live_report(out, live):
        results = comparison.compare(variants, study)
    if finished := [run for result in results for run in result.runs]:
        resolved = finished[0].experiment
        title = f"{resolved.data.name}, {resolved.data.partition.kind}, {rounds_text(finished)}"
        rows_by_label = [(result.variant.label, [run.rows for run in result.runs]) for result in results if result.runs]
        primary = finished[0].primary
        curves, shown = result_curves(rows_by_label, primary)
        files = f"Table: {out / 'comparison.json'}   Runs: {out}"
        if any(map(has_values, curves)):
            files = f"Curves: {draw_curves(curves, out / 'curves.png', title, shown, primary)}   {files}"
        rows = comparison.as_rows(results, study.seeds)
        table = ResultTable(rows, primary)
        say(f"{title}, {seeds_text(study.seeds)}: {table.caption}")
        say_table(["algorithm", *table.headings], [[row["label"], *table.texts(row)] for row in rows])
        say_verdict(results, primary)
        say(files)
    if failures := [failure for result in results for failure in result.failures]:
        raise RunError("\n".join(failures))


def say_verdict(results: "Sequence[Result]", measure: "Measure") -> None:
    """Say in words what a comparison shows."""
    from fedsol.analysis.verdict import summarize, verdict
    from fedsol.plots.curves import result_key

    groups = [[row for run in result.runs for row in run.rows] for result in results if result.runs]
    key, _ = result_key(groups, measure)
    named = [(result.variant.label, {run.experiment.seed: run.rows for run in result.runs}) for result in results]
    if lines := verdict([summarize(label, seeds, key) for label, seeds in named], measure):
        say("\n".join(["", *lines, ""]))


def rounds_text(runs: "Sequence[Run]") -> str:
    """Return how many rounds runs of one experiment have, for a title."""
    planned = counted(runs[0].experiment.rounds or 0, "round")
    return f"up to {planned}" if any(run.stopped for run in runs) else planned


def seeds_text(seeds: "Sequence[int]") -> str:
    """Return the seeds, for a title."""
    return f"seed{'' if len(seeds) == 1 else 's'} {','.join(map(str, seeds))}"


class ResultTable:
    """The columns of results in a table of a comparison or a sweep; some are there only where they differ."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], measure: "Measure") -> None:
        self._measure = measure
        self._has_seeds = any(len(row["seeds"]) > 1 for row in rows)
        self._has_held_out = any(row.get(f"held_out_{measure.key}") for row in rows)
        self._has_validation = any(row.get("best_validation") for row in rows)
        self._has_rounds = len({count for row in rows for count in row["rounds"]}) > 1

    @property
    def caption(self) -> str:
        """What the numbers are, and how the best round is chosen."""
        best = BEST_BY_VALIDATION if self._has_validation else BEST_OF_ANY
        spread = ", mean ± std over seeds" if self._has_seeds else ""
        held_out = "; held-out: on the clients' hold-out sets" if self._has_held_out else ""
        return f"test {self._measure.title}{spread}; best: {best}{held_out}"

    @property
    def headings(self) -> list[str]:
        """The names of the columns."""
        validation, rounds = ["validation"] * self._has_validation, ["rounds"] * self._has_rounds
        return ["final", "best", *["held-out"] * self._has_held_out, *validation, *rounds, "seconds"]

    def texts(self, row: Mapping[str, Any]) -> list[str]:
        """Return the columns of a row, as they are written."""
        keys = [f"final_{self._measure.key}", f"best_{self._measure.key}"]
        keys += [f"held_out_{self._measure.key}"] * self._has_held_out + ["best_validation"] * self._has_validation
        missing = "failed" if row["failures"] else "–"
        finished = len(row["seeds"]) - len(row["failures"])
        found = [self._spread(row.get(key), missing, finished) for key in keys]
        if row["failures"] and row[keys[0]]:
            found[0] += f" ({len(row['failures'])} failed)"
        counts = sorted(set(row["rounds"]))
        rounds = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(*counts)
        return [*found, *[rounds] * self._has_rounds, f"{row['seconds']:.1f}"]

    def _spread(self, spread: Mapping[str, float] | None, missing: str, seeds: int) -> str:
        """Return a mean, and a standard deviation if there is more than one seed."""
        if spread is None:
            return missing
        if seeds == 1:
            return self._measure.text(spread["mean"])
        return self._measure.spread_text(spread["mean"], spread["std"])


def finished_counter(total: int) -> "Callable[[Outcome], None]":
    """Return a function that reports each finished run and how many are done."""
    from fedsol.runs.rows import privacy_text

    done = 0

    def count(outcome: "Outcome") -> None:
        nonlocal done
        done += 1
        run = outcome.run
        text = "failed" if run is None else run.final_words
        words = privacy_text(run.rows) if run else ""
        say(f"[{done}/{total}] {outcome.spec.label}: {text}{f'; {words}' if words else ''}")

    return count
