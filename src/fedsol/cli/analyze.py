"""`fedsol analyze`: from the words on the command line to analyses."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedsol.analysis.analyze import ANALYSES, WITHOUT_RUNS, Options, Runs, Source, analyze, check, find_runs
from fedsol.cli.console import say, show_warnings
from fedsol.cli.options import read_experiment
from fedsol.config.tables import unknown_name
from fedsol.errors import InputError
from fedsol.runs.directory import RunDirectory


def analyze_runs(
    names: Sequence[str],
    what: str,
    changes: Sequence[str],
    out: Path | None,
    new_directory: Callable[[str], Path],
    **options: Any,
) -> None:
    """Everything is checked before anything is computed."""
    show_warnings()
    chosen = parse_what(what)
    runs = gather(names, chosen, changes)
    folder = out or (runs.sources[0].path / "analysis" if len(runs.sources) == 1 else new_directory("analysis"))
    settings = Options(
        out=folder,
        rhos=parse_numbers("--rho", options.pop("rho"), float),
        clients=parse_numbers("--clients", options.pop("clients"), int),
        **options,
    )
    check(chosen, runs, settings)
    for name in chosen:
        found = analyze(name, runs, settings)
        say(f"{name}: {', '.join(str(path) for path in found.files)}")
        for line in found.lines:
            say(f"  {line}")


def parse_what(text: str) -> list[str]:
    """`divergence,preservation`, or `all`."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise InputError(f"--what: is empty; allowed: all, {', '.join(ANALYSES)}")
    for name in names:
        if name not in ANALYSES and name != "all":
            raise unknown_name("--what", name, [*ANALYSES, "all"])
    return list(ANALYSES) if "all" in names else list(dict.fromkeys(names))


def gather(names: Sequence[str], what: Sequence[str], changes: Sequence[str]) -> Runs:
    """Runs by their directories; where no analysis needs one, an experiment's name will do, or nothing."""
    needing = [name for name in what if name not in WITHOUT_RUNS]
    if not needing and (not names or (len(names) == 1 and not _holds_runs(Path(names[0])))):
        return Runs([], read_experiment(names[0] if names else None, changes))
    if not names:
        raise InputError(f"RUN: is missing; {needing[0]} needs the directory of a run")
    if changes:
        raise InputError(
            "--set: is not allowed for a run, whose settings are its own; allowed: for `--what cost` alone"
        )
    sources: list[Source] = find_runs([Path(name) for name in names])
    return Runs(sources, sources[0].run.experiment)


def _holds_runs(path: Path) -> bool:
    return RunDirectory(path).exists or (path.is_dir() and any(path.rglob("experiment.toml")))


def parse_numbers(option: str, text: str | None, kind: Callable[[str], Any]) -> tuple[Any, ...] | None:
    """`0,0.5,1` as numbers; None if nothing was given."""
    if text is None:
        return None
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"{option}: {text!r} is not allowed; it must be numbers such as 0,1,2") from error
