"""`fedsol leaderboard`: one HTML page of methods by setting."""

from pathlib import Path
from typing import Annotated

import typer

from fedsol.cli.console import say


def leaderboard(
    places: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Runs, or directories that contain runs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("leaderboard.html"),
    last: Annotated[
        int, typer.Option("--last", min=1, help="Average each result over the last N evaluated rounds.")
    ] = 1,
    target: Annotated[
        float | None,
        typer.Option("--target", help="Count rounds and traffic to this result, such as 0.6 (default: FedAvg's)."),
    ] = None,
) -> None:
    """Rank methods by setting: mean over seeds, gain over FedAvg with an interval, rounds and traffic to a target."""
    from fedsol.reports.leaderboard import write_leaderboard
    from fedsol.studies.leaderboard import Rules

    boards = write_leaderboard(places, out, Rules(last, target))
    runs = sum(len(standing.runs) for board in boards for standing in board.standings)
    settings = "1 setting" if len(boards) == 1 else f"{len(boards)} settings"
    say(f"{runs} {'run' if runs == 1 else 'runs'} in {settings}: {out}, one file to open or send.")
