"""A filled table as people read it: the paper's number, ours and the difference side by side."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from fedsol.paper.numbers import Key, in_digits, with_std
from fedsol.paper.recipe import Cell, Ours, Table, is_partial

MARKDOWN_COLUMNS = 3
WITHOUT_END = 10_000


@dataclass(frozen=True)
class Sheet:
    """A piece of a table that fits on a page: some columns of a block, each with three numbers per row."""

    title: str
    columns: list[str]
    rows: dict[str, list[tuple[str, str, str]]]


@dataclass(frozen=True)
class Printed:
    """A table ready to be shown; `remarks` explain the marks at our numbers.

    `compared` is whether the paper has numbers for it: a figure has none.
    """

    headline: str
    sheets: list[Sheet]
    remarks: list[str]
    compared: bool

    def texts(self, three: tuple[str, str, str]) -> Sequence[str]:
        """What is shown of a cell."""
        return three if self.compared else three[1:2]


def lay_out(
    table: Table,
    ours: Mapping[Key, Ours],
    columns: int,
    only_filled: bool = False,
    chosen: Collection[Key] | None = None,
) -> Printed:
    """Lay out the table with at most so many of the paper's columns beside each other.

    With `only_filled` rows and columns without a number of ours are left out; with `chosen` columns that have neither
    one of these cells nor a number of ours.
    """
    marks: dict[tuple[str, ...], str] = {}
    cells = table.cells
    by_key = {cell.key: cell for cell in cells}
    sheets = []
    for block in dict.fromkeys(key[0] for key in by_key):
        keys = [key for key in by_key if key[0] == block]
        shown = [key for key in keys if key in ours] if only_filled else keys
        wanted = {key[2] for key in shown if chosen is None or key in chosen or key in ours}
        names = [column for column in dict.fromkeys(key[2] for key in keys) if column in wanted]
        rows = [row for row in dict.fromkeys(key[1] for key in keys) if _has_row(row, shown, by_key, ours)]
        for start in range(0, len(names), columns):
            part = names[start : start + columns]
            lines = {
                row: [
                    _numbers(table, by_key.get((block, row, name)), ours.get((block, row, name)), marks)
                    for name in part
                ]
                for row in rows
            }
            sheets.append(Sheet(block, part, lines))
    remarks = [f"[{mark}] differs from the paper: {'; '.join(differs)}" for differs, mark in marks.items()]
    missing = sum(not cell.extra and cell.key not in ours for cell in cells)
    compared = any(cell.paper for cell in cells)
    if missing and not only_filled:
        whose = "the paper's" if compared else "the"
        remarks.append(f"{missing} of {whose} {sum(not cell.extra for cell in cells)} cells are not run (blank)")
    partial = " (PARTIAL)" if is_partial(cells, ours) else ""
    return Printed(f"{table.name}{partial}: {table.title}", sheets, [*remarks, *table.notes], compared)


def _has_row(row: str, shown: Sequence[Key], by_key: Mapping[Key, Cell], ours: Mapping[Key, Ours]) -> bool:
    """Extra rows appear with their first number."""
    return any(key[1] == row and (not by_key[key].extra or key in ours) for key in shown)


def _numbers(
    table: Table, cell: Cell | None, found: Ours | None, marks: dict[tuple[str, ...], str]
) -> tuple[str, str, str]:
    paper = cell.paper if cell else None
    printed = paper.shown(table.digits) if paper else ""
    if found is None:
        return printed, "", ""
    mine = with_std(found.mean, found.std, table.digits)
    if found.differs:
        mark = marks.setdefault(found.differs, _letter(len(marks)))
        mine += f" [{mark}]"
    return printed, mine, in_digits(found.mean - paper.mean, table.digits, "+") if paper else ""


def _letter(number: int) -> str:
    return chr(ord("a") + number % 26) * (1 + number // 26)


def show(console: Console, table: Table, ours: Mapping[Key, Ours], chosen: Collection[Key] | None = None) -> None:
    """Print a table to the terminal, in as many pieces as its width takes; only columns with a chosen cell."""
    printed = lay_out(table, ours, WITHOUT_END, chosen=chosen)
    room, width = console.width - _row_width(printed.sheets), _column_width(printed)
    printed = lay_out(table, ours, max(1, room // width), chosen=chosen)
    console.print(escape(printed.headline), style="bold", highlight=False)
    for sheet in printed.sheets:
        piece = RichTable(title=escape(sheet.title) or None, title_justify="left")
        piece.add_column(escape(f"[{table.unit}]") if table.unit else "", overflow="fold")
        for column in sheet.columns:
            headings = (f"{column}\npaper", "\nours", "\ndiff.") if printed.compared else (column,)
            for heading in headings:
                piece.add_column(escape(heading), justify="right", no_wrap=True)
        for row, numbers in sheet.rows.items():
            piece.add_row(escape(row), *(escape(text) for three in numbers for text in printed.texts(three)))
        console.print(piece)
    for remark in printed.remarks:
        console.print(escape(remark), highlight=False, soft_wrap=True)


def _row_width(sheets: Sequence[Sheet]) -> int:
    """Of the row names, with the frame."""
    return max((len(row) for sheet in sheets for row in sheet.rows), default=0) + 5


def _column_width(printed: Printed) -> int:
    """Of the widest column: its numbers with the frames between them, or its name above the first."""
    headings = (0, 4, 5) if printed.compared else (0,)
    most = 1
    for sheet in printed.sheets:
        for index, name in enumerate(sheet.columns):
            columns = zip(*(printed.texts(numbers[index]) for numbers in sheet.rows.values()), strict=True)
            widths = [max(heading, *map(len, texts)) for heading, texts in zip(headings, columns, strict=True)]
            most = max(most, max(widths[0], len(name)) + sum(widths[1:]) + 3 * len(widths))
    return most


def as_markdown(table: Table, ours: Mapping[Key, Ours], heading: str = "#", only_filled: bool = False) -> str:
    """Return the table as Markdown, with its remarks below."""
    printed = lay_out(table, ours, MARKDOWN_COLUMNS, only_filled)
    parts = [f"{heading} {printed.headline}\n"]
    for sheet in printed.sheets:
        first = f"{sheet.title} [{table.unit}]" if sheet.title else f"[{table.unit}]" if table.unit else ""
        parts_of = [": paper", ": ours", ": difference"] if printed.compared else [""]
        titles = [first, *(column + part for column in sheet.columns for part in parts_of)]
        lines = [_line(titles), "|---|" + "---:|" * (len(titles) - 1)]
        for row, numbers in sheet.rows.items():
            lines.append(_line([row, *(text for three in numbers for text in printed.texts(three))]))
        parts.append("\n".join(lines) + "\n")
    parts.append("".join(f"- {remark}\n" for remark in printed.remarks))
    return "\n".join(part for part in parts if part)


def _line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def as_rows(table: Table, ours: Mapping[Key, Ours]) -> dict[str, Any]:
    """Return a filled table as plain values, for JSON."""
    return {
        "recipe": table.name,
        "title": table.title,
        "label": table.label,
        "unit": table.unit,
        "partial": is_partial(table.cells, ours),
        "cells": [_row(cell, ours.get(cell.key)) for cell in table.cells],
    }


def _row(cell: Cell, found: Ours | None) -> dict[str, Any]:
    block, row, column = cell.key
    paper = cell.paper
    return {
        "block": block,
        "row": row,
        "column": column,
        "extra": cell.extra,
        "paper": asdict(paper) if paper else None,
        "ours": None if found is None else {"mean": found.mean, "std": found.std},
        "difference": None if found is None or paper is None else found.mean - paper.mean,
        "differs": [] if found is None else list(found.differs),
        "runs": [] if found is None else [str(run.path) for run in found.runs],
    }
