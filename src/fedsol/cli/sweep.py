"""`fedsol sweep`: from the words on the command line to a table and a picture."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from fedsol.cli.commands import console, read_experiment, say, show_warnings, spread_text
from fedsol.errors import RunError
from fedsol.studies.grids import Choice, parse_grid
from fedsol.studies.run_many import Outcome, check_jobs
from fedsol.studies.sweep import Sweep, sweep
from fedsol.studies.variants import parse_seeds
from fedsol.training.progress import percent


def sweep_settings(
    name: str | None,
    grid: Sequence[str],
    seeds: str,
    changes: Sequence[str],
    out: Path,
    resume: bool,
    jobs: int | None,
    trials: int | None,
) -> None:
    """Everything is checked before the first run."""
    from fedsol.plots.sweep import draw_sweep

    show_warnings()
    check_jobs(jobs)
    base, axes, seed_list = read_experiment(name, changes), parse_grid(grid), parse_seeds(seeds)
    runs = len(seed_list)
    for axis in axes:
        runs *= len(axis.values) if isinstance(axis, Choice) and trials is None else 1
    tell = teller(runs * (trials or 1))
    try:
        if trials is None:
            found = sweep(axes, base, seed_list, out, resume, jobs, tell)
        else:
            from fedsol.studies.search import search

            found = search(axes, base, seed_list, out, trials, resume, jobs, tell)
    except KeyboardInterrupt:
        if out.exists():
            say(f"\nSaved in {out}. Go on with the same command, --out {out} and --resume.")
        raise
    rows = found.rows()
    if any(row["final_accuracy"] for row in rows):
        finished = next(run for point in found.points for run in point.result.runs)
        title = f"{Path(finished.experiment.data.name).stem}, {finished.experiment.rounds} rounds"
        named = f"{len(seed_list)} seeds" if len(seed_list) > 1 else f"seed {seed_list[0]}"
        draw_sweep(rows, found.keys, out / "sweep", f"{title}, {named}")
        say(f"{title}, seeds {seeds}: test accuracy, mean ± std over seeds")
        console.print(sweep_table(found))
        if trials is not None:
            from fedsol.studies.search import best_point

            say(f"Best: {best_point(found).result.variant.label}")
        say(f"Picture: {out / 'sweep.png'}   Table: {out / 'sweep.csv'}   Runs: {out}")
    if failures := [failure for point in found.points for failure in point.result.failures]:
        raise RunError("\n".join(failures))


def teller(total: int) -> Callable[[Outcome], None]:
    """Says which of so many runs are done."""
    done = 0

    def tell(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        text = "failed" if outcome.run is None else f"final accuracy {percent(outcome.run.final_accuracy)}"
        say(f"[{done}/{total}] {outcome.cell.label}: {text}")

    return tell


def sweep_table(found: Sweep) -> Table:
    """The table of a sweep for people."""
    table = Table()
    for key in found.keys:
        table.add_column(escape(key), overflow="fold")
    for column in ("final", "best", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in found.rows():
        settings = [
            escape(f"{row['settings'][key]:g}" if _is_float(row, key) else str(row["settings"][key]))
            for key in found.keys
        ]
        spreads = [spread_text(row[key]) for key in ("final_accuracy", "best_accuracy")]
        failed = f" ({len(row['failures'])} failed)" if row["failures"] else ""
        table.add_row(*settings, spreads[0] + failed, spreads[1], f"{row['seconds']:.1f}")
    return table


def _is_float(row: dict[str, object], key: str) -> bool:
    settings = row["settings"]
    return isinstance(settings, dict) and isinstance(settings[key], float)
