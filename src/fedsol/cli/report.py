"""`fedsol report`: one HTML page about runs, as a file or served while they train."""

from pathlib import Path
from typing import Annotated

import typer

from fedsol.cli.console import say
from fedsol.errors import InputError


def report(
    places: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Runs, or directories that contain runs.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The page to write (default: report.html).")] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the page on this machine instead, kept up to date.")
    ] = False,
    port: Annotated[int | None, typer.Option("--port", help="Port for --serve (default: any free port).")] = None,
) -> None:
    """Write one self-contained HTML page about one run or many: words, table, curves, classes, partition, settings."""
    from fedsol.reports.page import write_report

    if serve:
        if out is not None:
            raise InputError(f"--out: is not allowed with --serve, which writes nothing (got {out})")
        _serve(places, port or 0)
        return
    if port is not None:
        raise InputError(f"--port: needs --serve (got {port})")
    out = out or Path("report.html")
    runs = write_report(places, out)
    size = out.stat().st_size / 1e6
    say(f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}: {out} ({size:.1f} MB), one file to open or send.")


def _serve(places: list[Path], port: int) -> None:
    from fedsol.reports.live import FolderView

    for place in places:
        if not place.is_dir():
            raise InputError(f"{place}: no such directory")
    with FolderView(places, port) as view:
        print(f"Serving a report of {', '.join(map(str, places))} until Ctrl-C: {view.address}", flush=True)
        view.wait()
