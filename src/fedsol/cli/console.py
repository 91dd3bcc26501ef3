"""The console: plain text, tables, warnings, and how to resume after Ctrl-C."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable

console = Console(markup=False, highlight=False, soft_wrap=True)
say = console.print


def counted(number: int, noun: str) -> str:
    """Return `1 round` or `2 rounds`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def show_warnings() -> None:
    """Show the library's warnings in the terminal, above the progress bar."""
    from rich.logging import RichHandler

    logger = logging.getLogger("fedsol")
    if not logger.handlers:
        logger.addHandler(RichHandler(console=console, show_path=False, show_time=False))


def say_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str | None = None,
    caption: str | None = None,
    text_columns: int = 1,
) -> None:
    """Print a table: text columns first, then number columns, aligned right."""
    table = RichTable(title=title, caption=caption, title_justify="left", caption_justify="left")
    for number, heading in enumerate(headings):
        if number < text_columns:
            table.add_column(heading, overflow="fold", no_wrap=heading == "name")
        else:
            table.add_column(heading, justify="right", no_wrap=" " not in heading)
    for row in rows:
        table.add_row(*row)
    console.print(table)


@contextmanager
def resume_hint(out: Path, command: str, saved: str = "experiment.toml") -> Iterator[None]:
    """On Ctrl-C, say how to resume the work in `out`, if it contains a file named `saved`."""
    try:
        yield
    except KeyboardInterrupt:
        if any(out.rglob(saved)):
            say(f"\nSaved in {out}. Resume with {command}.")
        raise
