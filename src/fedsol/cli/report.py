"""`fedsol report`."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedsol.report.page import write_report


def make_report(places: Sequence[Path], out: Path) -> None:
    """Writes the page and says where it is."""
    runs = write_report(places, out)
    size = out.stat().st_size / 1e6
    text = f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}: {out} ({size:.1f} MB), one file to open or send."
    Console().print(text, highlight=False, markup=False, soft_wrap=True)
