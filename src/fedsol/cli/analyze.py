"""`fedsol analyze`: why a method works, as figures and data from one run or several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsol.analysis import ANALYSES, check_task, make_analysis, names_of
from fedsol.cli.console import say, show_warnings
from fedsol.cli.options import SetOption, new_directory, read_experiment
from fedsol.errors import InputError

if TYPE_CHECKING:
    from fedsol.analysis.base import Runs


def analyze(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Run directories, or directories that contain runs; see --what."),
    ] = None,
    what: Annotated[
        str,
        typer.Option(
            help=f"all, or some of {', '.join(ANALYSES)}. Without a run: {', '.join(names_of(source='nothing'))}; "
            "cost also takes an experiment."
        ),
    ] = "all",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Output directory (default: RUN/analysis).")] = None,
    rho: Annotated[str | None, typer.Option(help="orthogonality: strengths to try, such as 0,0.5,1,2.")] = None,
    clients: Annotated[
        str | None, typer.Option(help="Clients to retrain (default: those sampled in the next round).")
    ] = None,
    where: Annotated[str, typer.Option(help="orthogonality: angle over all, body or head.")] = "all",
    strength: Annotated[
        str | None, typer.Option(help="strength: adaptive-column, adaptive or fixed (default: the runs' own).")
    ] = None,
    examples: Annotated[int, typer.Option(help="landscape: training examples.")] = 512,
    points: Annotated[int, typer.Option(help="landscape: points along each axis.")] = 21,
    radius: Annotated[float, typer.Option(help="landscape: distance from the model to the end of each axis.")] = 1.0,
    repetitions: Annotated[int, typer.Option(help="cost: timed steps per method.")] = 20,
    algorithms: Annotated[
        list[str] | None, typer.Option("--algorithm", "-a", help="cost: methods, as in `fedsol compare`; repeatable.")
    ] = None,
    changes: SetOption = None,
) -> None:
    """Show why a method works: figures (PNG, PDF) and data from one run or several, compared."""
    from fedsol.analysis.base import run_analysis
    from fedsol.config.overrides import parse_numbers

    options = {
        "rho": None if rho is None else tuple(parse_numbers("--rho", rho, float)),
        "clients": None if clients is None else tuple(parse_numbers("--clients", clients, int)),
        "where": where,
        "strength": strength,
        "examples": examples,
        "points": points,
        "radius": radius,
        "repetitions": repetitions,
        "algorithms": tuple(algorithms or ()),
    }
    show_warnings()
    chosen = parse_what(what)
    analyses = {name: make_analysis(name, options) for name in ANALYSES}  # all, so that no bad option is ignored
    found = find(runs or [], chosen, changes or [])
    kind = found.experiment.task.kind
    if "all" in what.split(","):
        chosen = [name for name in chosen if ANALYSES[name].fits(kind)]
    check_task(chosen, kind)
    for name in chosen:
        analyses[name].check(found)
    alone = found.replays[0].run.path / "analysis" if len(found.replays) == 1 else None
    folder = out or alone or new_directory("analysis")
    for name in chosen:
        output = run_analysis(analyses[name], found, folder)
        say(f"{name}: {', '.join(map(str, output.files))}")
        for line in output.lines:
            say(f"  {line}")


def parse_what(text: str) -> list[str]:
    """Return the names in `divergence,preservation`, or every name for `all`."""
    from fedsol.config.overrides import split_list
    from fedsol.config.tables import unknown_name

    names = split_list(text)
    if not names:
        raise InputError(f"--what: is empty; allowed: all, {', '.join(ANALYSES)}")
    for name in names:
        if name not in ANALYSES and name != "all":
            raise unknown_name("--what", name, [*ANALYSES, "all"])
    return list(ANALYSES) if "all" in names else list(dict.fromkeys(names))


def find(names: Sequence[str], what: Sequence[str], changes: Sequence[str]) -> Runs:
    """Return the runs in these directories or, if no analysis reads a run, the named (or default) experiment."""
    from fedsol.analysis.base import Runs
    from fedsol.config.tables import PRIVATE
    from fedsol.runs.find import find_runs, runs_below

    reading = [name for name in what if ANALYSES[name].source != "nothing"]
    if not reading and (not names or (len(names) == 1 and not any(runs_below(Path(names[0]))))):
        return Runs([], read_experiment(names[0] if names else None, changes))
    if not names:
        raise InputError(f"RUN: is missing; {reading[0]} requires a run directory")
    if changes:
        raise InputError("--set: is not allowed with a run, which has its own settings; allowed: with an experiment")
    runs = find_runs([Path(name) for name in names])
    on_data = [name for name in what if ANALYSES[name].source == "data"]
    for run in runs:
        if on_data and run.experiment.data.name == PRIVATE:
            allowed = [name for name in ANALYSES if ANALYSES[name].source != "data"]
            raise InputError(
                f"{run.path}: {on_data[0]} reads the clients' data, which only the nodes of that deployment have; "
                f"allowed: --what {','.join(allowed)}"
            )
    return Runs(runs)
