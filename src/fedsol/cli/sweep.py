"""`fedsol sweep`: a grid of settings over seeds, or a search through it, as a table and a picture."""

import math
from typing import Annotated

import typer

from fedsol.cli.compare import ResultTable, finished_counter, rounds_text, seeds_text
from fedsol.cli.console import resume_hint, say, say_table, show_warnings
from fedsol.cli.options import (
    ExperimentArgument,
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


def sweep(
    experiment: ExperimentArgument = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="KEY=V1,V2,…",
            help="A setting and its values; repeatable. With --search also KEY=LOW..HIGH or KEY=log:LOW..HIGH.",
        ),
    ] = None,
    seeds: SeedsOption = "0,1,2",
    rounds: RoundsOption = None,
    changes: SetOption = None,
    out: OutOption = None,
    resume: ResumeOption = False,
    live: LiveOption = False,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Runs at a time (default: one per core).")] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            "--search",
            min=1,
            metavar="N",
            help="Let Optuna propose N settings, judged on validation data if there is any.",
        ),
    ] = None,
) -> None:
    """Run a grid of settings over seeds, or search it: a table and a picture."""
    from fedsol.plots.sweep import draw_sweep
    from fedsol.studies.grid import Choice, parse_grid, value_text
    from fedsol.studies.run_many import Study
    from fedsol.studies.search import best_result, search
    from fedsol.studies.sweep import sweep as run_grid
    from fedsol.studies.variants import parse_seeds

    show_warnings()
    out = out or new_directory("sweep")
    base = read_experiment(experiment, changes, shortcuts(rounds=rounds))
    axes, seed_list = parse_grid(grid or []), parse_seeds(seeds)
    combinations = trials or math.prod(len(axis.values) for axis in axes if isinstance(axis, Choice))
    study = Study(out, seed_list, resume, jobs, finished=finished_counter(combinations * len(seed_list)))
    with resume_hint(out, f"the same command, --out {out} and --resume"), live_report(out, live):
        found = search(axes, base, study, trials) if trials else run_grid(axes, base, study)
    rows = found.rows()
    if runs := [run for result in found.results for run in result.runs]:
        title = f"{runs[0].experiment.data.short_name}, {rounds_text(runs)}"
        named = f"{len(seed_list)} seeds" if len(seed_list) > 1 else f"seed {seed_list[0]}"
        picture = ""
        if any(run.results for run in runs):
            draw_sweep(rows, found.keys, out / "sweep", f"{title}, {named}", found.primary)
            picture = f"Picture: {out / 'sweep.png'}   "
        table = ResultTable(rows, found.primary)
        say(f"{title}, {seeds_text(seed_list)}: {table.caption}")
        lines = [[*(value_text(row["settings"][key]) for key in found.keys), *table.texts(row)] for row in rows]
        say_table([*found.keys, *table.headings], lines, text_columns=len(found.keys))
        if trials:
            on = "the test set" if any(run.results for run in runs) else "hold-out sets"
            how = "by validation" if runs[0].selection.has_validation else f"by the final result on {on}"
            say(f"Best {how}: {best_result(found).variant.label}")
        say(f"{picture}Table: {out / 'sweep.csv'}   Runs: {out}")
    if failures := [failure for result in found.results for failure in result.failures]:
        raise RunError("\n".join(failures))
