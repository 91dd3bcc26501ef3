"""`fedsol reproduce`: a table or figure of the paper."""

from pathlib import Path
from typing import Annotated

import typer

from fedsol.cli.console import console, resume_hint, say, say_table, show_warnings
from fedsol.cli.options import JobsOption, SeedsOption, SetOption
from fedsol.config.catalog import listing


def reproduce(
    name: Annotated[str, typer.Argument(help="A table or figure of the paper, or `list` for all of them.")],
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Only some cells: 'dataset=cifar10,method=fedavg|fedsol'; repeatable."),
    ] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", help="Rounds (default: the paper's).")] = None,
    seeds: SeedsOption = "0,1,2",
    part: Annotated[
        float | None, typer.Option("--part", help="Share of every client's data and of the test set, e.g. 0.02.")
    ] = None,
    changes: SetOption = None,
    jobs: JobsOption = 1,
    estimate: Annotated[bool, typer.Option("--estimate", help="Print how long it would take here, and stop.")] = False,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for runs and tables; finished runs in it are reused.")
    ] = Path("runs/paper"),
    data_root: Annotated[Path, typer.Option("--data-root", help="Folder that holds the datasets.")] = Path("data"),
) -> None:
    """Run a table or figure of the paper, cell by cell: the paper's number, ours and the difference side by side."""
    if name == "list":
        rows = listing("recipes")
        say_table(list(rows[0]), [list(row.values()) for row in rows], "recipes", text_columns=len(rows[0]))
        say("Each cell runs with 3 seeds. fedsol reproduce NAME --estimate says how long that takes here.")
        return
    from fedsol.paper import reproduce as paper
    from fedsol.studies.variants import parse_seeds

    show_warnings()
    options = paper.Options(out, data_root, parse_seeds(seeds), rounds, part, only or [], changes or [], jobs)
    if estimate:
        paper.estimate(name, options, console)
        return
    with resume_hint(out, "the same command"):
        paper.reproduce(name, options, console)
