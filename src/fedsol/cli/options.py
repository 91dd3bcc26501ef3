"""What the commands share: arguments, exit codes, the experiment they name, and new directories."""

import contextlib
import functools
import inspect
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fedsol.core.interrupts import noted
from fedsol.core.user_code import describe_user_error, user_place
from fedsol.errors import InputError, RunError, UserCodeError

if TYPE_CHECKING:
    from fedsol.config.experiment import Experiment

Command = TypeVar("Command", bound=Callable[..., Any])

ExperimentArgument = Annotated[
    str | None,
    typer.Argument(metavar="[EXPERIMENT]", help="A TOML file, or a name from `fedsol list experiments`."),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a setting; repeatable.")
]
OutOption = Annotated[Path | None, typer.Option("--out", "-o", help="Output directory (default: below runs/).")]
RoundsOption = Annotated[int | None, typer.Option("--rounds", help="Communication rounds.")]
SeedsOption = Annotated[str, typer.Option("--seeds", help="Comma-separated.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Resume the runs in --out.")]
JobsOption = Annotated[int, typer.Option("--jobs", min=1, help="Runs at a time, each in its own process.")]
LiveOption = Annotated[bool, typer.Option("--live", help="Serve a report of the runs on this machine while training.")]
TracebackOption = Annotated[bool, typer.Option("--traceback", help="Show the full traceback of an error.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable.")]


def guarded(command: Command) -> Command:
    """Exit with 2 for bad input, 1 for a failed run, 130 if interrupted: one message, no traceback.

    An error in the user's own code (a model, loader or algorithm) is bad input. `--traceback` shows where any of these
    comes from.
    """

    @functools.wraps(command)
    def wrapper(*arguments: Any, show_traceback: bool, **options: Any) -> Any:
        try:
            with noted():
                return command(*arguments, **options)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # an impatient second Ctrl-C changes nothing
            print("interrupted", file=sys.stderr)
            raise typer.Exit(130) from None
        except (Exception, SystemExit) as error:  # own code may call sys.exit
            is_known = isinstance(error, InputError | RunError)
            if not is_known and user_place(error) is None:
                raise
            if show_traceback:
                traceback.print_exception(error)
                print(getattr(error, "details", ""), file=sys.stderr)
            print(f"error: {error if is_known else describe_user_error(error)}", file=sys.stderr)
            if not show_traceback and (not is_known or isinstance(error, UserCodeError)):
                print("Full traceback: --traceback", file=sys.stderr)
            raise typer.Exit(1 if isinstance(error, RunError) else 2) from None
        finally:
            _remove_unused_directories()

    signature = inspect.signature(command, eval_str=True)
    shown = inspect.Parameter(
        "show_traceback", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=TracebackOption
    )
    parameters = [*signature.parameters.values(), shown]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper  # type: ignore[return-value]


def read_experiment(
    name: str | None, changes: Sequence[str] | None = None, named: Mapping[str, Any] | None = None
) -> "Experiment":
    """Return the experiment of a file or name, with `--set` and other options applied.

    Without one: the quick start, or the defaults for the data that `--set data.name=…` names.
    """
    from fedsol.config.experiment import Experiment, find_experiment
    from fedsol.config.overrides import apply_overrides, parse_override
    from fedsol.federation.optimizer import check_optimizer

    overrides = dict(map(parse_override, changes or ()))
    tables = {} if name is None and "data.name" in overrides else find_experiment(name or "quickstart")
    say_code(name, tables)
    experiment = Experiment(**apply_overrides(tables, {**overrides, **(named or {})}))
    check_optimizer(experiment.client)
    return experiment


def shortcuts(algorithm: str | None = None, rounds: int | None = None, seed: int | None = None) -> dict[str, Any]:
    """Return the keys that `--algorithm`, `--rounds` and `--seed` set."""
    from fedsol.studies.variants import algorithm_changes

    named = {"rounds": rounds, "seed": seed}
    chosen = {} if algorithm is None else algorithm_changes(algorithm)
    return {**chosen, **{key: value for key, value in named.items() if value is not None}}


def say_code(source: Path | str | None, tables: Mapping[str, Any]) -> None:
    """Say which code outside of fedsol an experiment from a file runs: `model.name = 'my_models:wide'`."""
    code = [f"{key} = {name!r}" for key, name in _names(tables) if _names_code(name)]
    if code:
        print(f"{source}: runs code that is not part of fedsol: {', '.join(code)}", file=sys.stderr)


def _names(tables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every key whose value may name code, and the value."""
    for key in ("data", "model", "algorithm", "task"):
        table = tables.get(key)
        for name in ("loss", "metrics") if key == "task" else ("name",):
            value = table.get(name) if isinstance(table, dict) else None
            yield from ((f"{key}.{name}", one) for one in (value if isinstance(value, list) else [value]))


def _names_code(name: Any) -> bool:
    return isinstance(name, str) and ":" in name and name.rpartition(":")[2].replace(".", "").isidentifier()


@contextlib.contextmanager
def live_report(out: Path, is_wanted: bool) -> Iterator[None]:
    """Serve a report of all runs in a directory, if that is wanted."""
    if not is_wanted:
        yield
        return
    from fedsol.core.files import make_directory

    make_directory(out)
    # In a process of its own: processes that train are forked from this one, which must have a single thread.
    command = [sys.executable, "-m", "fedsol", "report", str(out), "--serve"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        server.send_signal(signal.SIGINT)  # as Ctrl-C: an open page gets the last update
        server.wait()


_new: list[Path] = []


def new_directory(label: str) -> Path:
    """Make a directory below runs/ and return it: nobody else has it, even if started in the same second.

    If the command fails before it writes anything there, the directory is removed again.
    """
    from fedsol.runs.find import make_directory_for

    path = make_directory_for(label)
    _new.append(path)
    return path


def _remove_unused_directories() -> None:
    while _new:
        path = _new.pop()
        with contextlib.suppress(OSError):  # it is in use
            path.rmdir()
            path.parent.rmdir()
