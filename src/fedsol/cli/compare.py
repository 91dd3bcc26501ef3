"""`fedsol compare`: several algorithms over seeds, as a table and learning curves."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from fedsol.cli.console import console, resume_hint, say, say_table, show_warnings
from fedsol.cli.options import (
    ExperimentArgument,
    JobsOption,
    OutOption,
    ResumeOption,
    SeedsOption,
    SetOption,
    new_directory,
    read_experiment,
)
from fedsol.errors import RunError

RESULTS = ("final", "best", "seconds")


def compare(
    experiment: ExperimentArgument = None,
    algorithms: Annotated[
        list[str] | None,
        typer.Option("--algorithm", "-a", help="Such as fedavg,fedsol or fedsol:rho=1.5,perturb=all; repeatable."),
    ] = None,
    seeds: SeedsOption = "0,1,2",
    changes: SetOption = None,
    out: OutOption = None,
    resume: ResumeOption = False,
    jobs: JobsOption = 1,
) -> None:
    """Compare algorithms over seeds on the same data: a table and learning curves."""
    from fedsol.plots.curves import accuracy_curves, draw_curves
    from fedsol.studies import compare as comparison
    from fedsol.studies.run_many import Study
    from fedsol.studies.variants import parse_seeds, parse_variants
    from fedsol.training.progress import progress

    show_warnings()
    out = out or new_directory("compare")
    variants = parse_variants(algorithms or ["fedavg", "fedsol"], read_experiment(experiment, changes))
    study = Study(out, parse_seeds(seeds), resume, jobs, lambda label: [progress(console, label, lines=2)])
    with resume_hint(out, f"the same command, --out {out} and --resume"):
        results = comparison.compare(variants, study)
    if finished := [run for result in results for run in result.runs]:
        resolved = finished[0].experiment
        title = f"{resolved.data.name}, {resolved.data.partition.kind}, {resolved.rounds} rounds"
        rows_by_label = [(result.variant.label, [run.rows for run in result.runs]) for result in results if result.runs]
        curves, shown = accuracy_curves(rows_by_label)
        draw_curves(curves, out / "curves.png", title=title, ylabel=shown)
        say(f"{title}, seeds {seeds}: test accuracy, mean ± std over seeds")
        rows = comparison.as_rows(results, study.seeds)
        say_table(["algorithm", *RESULTS], [[row["label"], *result_texts(row)] for row in rows])
        say(f"Curves: {out / 'curves.png'}   Table: {out / 'comparison.json'}   Runs: {out}")
    if failures := [failure for result in results for failure in result.failures]:
        raise RunError("\n".join(failures))


def result_texts(row: Mapping[str, Any]) -> list[str]:
    """Return final accuracy, best accuracy and seconds, as tables show them."""
    final, best = (
        f"{100 * spread['mean']:.2f} ± {100 * spread['std']:.2f} %" if spread else "failed"
        for spread in (row["final_accuracy"], row["best_accuracy"])
    )
    failed = f" ({len(row['failures'])} failed)" if row["failures"] and row["final_accuracy"] else ""
    return [final + failed, best, f"{row['seconds']:.1f}"]
