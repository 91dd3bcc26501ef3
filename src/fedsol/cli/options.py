"""What the commands of the command line share: arguments, exit codes, names of new directories."""

import functools
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from fedsol.errors import InputError, RunError

Command = TypeVar("Command", bound=Callable[..., Any])

ExperimentArgument = Annotated[
    str | None,
    typer.Argument(metavar="[EXPERIMENT]", help="A TOML file, or a name from `fedsol list experiments`."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Replace a setting; may be given often."),
]
OutOption = Annotated[Path | None, typer.Option("--out", "-o", help="Directory to write to (default: below runs/).")]
RootOption = Annotated[Path, typer.Option("--root", help="Folder that holds the datasets.")]


def guarded(command: Command) -> Command:
    """Exit codes of the contract: 2 bad input, 1 a run that failed, 130 interrupted; one message, no traceback."""

    @functools.wraps(command)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        try:
            return command(*arguments, **options)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
        except RunError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # an impatient second Ctrl-C changes nothing
            print("interrupted", file=sys.stderr)
            raise typer.Exit(130) from None

    return wrapper  # type: ignore[return-value]


def new_directory(label: str) -> Path:
    """A directory below runs/ that no other run has."""
    base = Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{label}"
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path
