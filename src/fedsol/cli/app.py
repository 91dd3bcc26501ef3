"""The `fedsol` command. Heavy libraries are imported inside the commands, so that `fedsol --help` is instant."""

import io
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from fedsol.cli import data, flower
from fedsol.cli.analyze import analyze
from fedsol.cli.choose import choose
from fedsol.cli.compare import compare
from fedsol.cli.doctor import doctor
from fedsol.cli.estimate import estimate
from fedsol.cli.export import export
from fedsol.cli.init import init
from fedsol.cli.leaderboard import leaderboard
from fedsol.cli.list import list_names
from fedsol.cli.options import guarded
from fedsol.cli.partition import partition
from fedsol.cli.personalize import personalize
from fedsol.cli.predict import evaluate, predict
from fedsol.cli.report import report
from fedsol.cli.reproduce import reproduce
from fedsol.cli.run import run
from fedsol.cli.sweep import sweep

app = typer.Typer(
    help="Federated learning for data that differs from client to client.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    """Handle the options that come before a command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be Unicode
    if version:
        from importlib import metadata

        print(f"fedsol {metadata.version('fedsol')}")
        raise typer.Exit


def _add(group: typer.Typer, commands: Mapping[str, Callable[..., None]], panel: str | None = None) -> None:
    for name, command in commands.items():
        group.command(name, rich_help_panel=panel)(guarded(command))


def _group(name: str, description: str, commands: Mapping[str, Callable[..., Any]], panel: str) -> None:
    group = typer.Typer(help=description, no_args_is_help=True)
    _add(group, commands)
    app.add_typer(group, name=name, rich_help_panel=panel)


TRAIN, PREPARE, UNDERSTAND, USE = "Train", "Prepare", "Understand", "Use the model"

_add(app, {"run": run, "compare": compare, "sweep": sweep, "choose": choose, "reproduce": reproduce}, TRAIN)
_add(app, {"init": init, "list": list_names, "partition": partition, "estimate": estimate, "doctor": doctor}, PREPARE)
_group("data", "Download datasets, or check their files.", {"fetch": data.fetch, "verify": data.verify}, PREPARE)
_add(app, {"report": report, "leaderboard": leaderboard, "analyze": analyze, "personalize": personalize}, UNDERSTAND)
_add(app, {"predict": predict, "evaluate": evaluate, "export": export}, USE)
_group("flower", "Run federations across many machines with Flower.", {"app": flower.app, "run": flower.run}, USE)
