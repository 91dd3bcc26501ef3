"""The `fedsol` command. Heavy libraries are imported inside the commands, so that `fedsol --help` is instant."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsol.cli import data, flower
from fedsol.cli.compare import compare
from fedsol.cli.estimate import estimate
from fedsol.cli.list import list_names
from fedsol.cli.options import SetOption, guarded, new_directory
from fedsol.cli.partition import partition
from fedsol.cli.personalize import personalize
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
    """Handle the options before a command."""
    if version:
        from importlib import metadata

        print(f"fedsol {metadata.version('fedsol')}")
        raise typer.Exit


def analyze(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Directories of runs, or of folders that hold some; see --what."),
    ] = None,
    what: Annotated[
        str,
        typer.Option(
            "--what",
            help="all, or some of curves, partition, orthogonality, divergence, preservation, strength, landscape, "
            "cost, toy. The last two need no run; cost also takes an experiment.",
        ),
    ] = "all",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Directory to write to (default: analysis in the run's).")
    ] = None,
    rho: Annotated[
        str | None, typer.Option("--rho", help="orthogonality: strengths to try, such as 0,0.5,1,2.")
    ] = None,
    clients: Annotated[
        str | None, typer.Option("--clients", help="Clients to train again (default: those the next round samples).")
    ] = None,
    where: Annotated[str, typer.Option("--where", help="orthogonality: angle over all, body or head.")] = "all",
    strength: Annotated[
        str | None,
        typer.Option("--strength", help="strength: adaptive-column, adaptive or fixed (default: that of the runs)."),
    ] = None,
    examples: Annotated[int, typer.Option("--examples", help="landscape: training examples.")] = 512,
    points: Annotated[int, typer.Option("--points", help="landscape: points along each axis.")] = 21,
    radius: Annotated[float, typer.Option("--radius", help="landscape: length of each axis from the model.")] = 1.0,
    repetitions: Annotated[int, typer.Option("--repetitions", help="cost: timed steps of each method.")] = 20,
    algorithms: Annotated[
        list[str] | None, typer.Option("--algorithm", "-a", help="cost: methods, as in `fedsol compare`.")
    ] = None,
    changes: SetOption = None,
) -> None:
    """Show why a method works: figures (PNG, PDF) and data from one run or several, compared."""
    from fedsol.cli.analyze import analyze_runs

    analyze_runs(
        runs or [],
        what,
        changes or [],
        out,
        new_directory,
        rho=rho,
        clients=clients,
        where=where,
        strength=strength,
        examples=examples,
        points=points,
        radius=radius,
        repetitions=repetitions,
        algorithms=tuple(algorithms or ()),
    )


def _add(group: typer.Typer, commands: Mapping[str, Callable[..., None]]) -> None:
    for name, command in commands.items():
        group.command(name)(guarded(command))


def _group(name: str, description: str, commands: Mapping[str, Callable[..., Any]]) -> None:
    group = typer.Typer(help=description, no_args_is_help=True)
    _add(group, commands)
    app.add_typer(group, name=name)


_add(
    app,
    {
        "run": run,
        "compare": compare,
        "sweep": sweep,
        "analyze": analyze,
        "list": list_names,
        "partition": partition,
        "personalize": personalize,
        "estimate": estimate,
        "report": report,
        "reproduce": reproduce,
    },
)
_group("data", "Download datasets, or check their files.", {"fetch": data.fetch, "verify": data.verify})
_group("flower", "Federations of many machines, on Flower.", {"app": flower.app, "run": flower.run})


def main() -> None:
    """Run the `fedsol` command."""
    app()


if __name__ == "__main__":
    main()
