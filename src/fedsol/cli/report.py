"""`fedsol report`: one HTML page about runs."""

from pathlib import Path
from typing import Annotated

import typer

from fedsol.cli.console import say


def report(
    places: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Runs, or directories that contain runs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one self-contained HTML page about one run or many: table, curves, classes, partition, settings."""
    from fedsol.reports.page import write_report

    runs = write_report(places, out)
    size = out.stat().st_size / 1e6
    say(f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}: {out} ({size:.1f} MB), one file to open or send.")
