"""A filled table for readers: the paper's number, ours and the difference side by side."""

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from fedsol.paper.numbers import Key, in_digits, with_std
from fedsol.paper.recipe import Ours, Table, TrainedTable, is_partial
from fedsol.paper.store import LAST, first_round_at, last_mean

MARKDOWN_COLUMNS = 3
UNLIMITED = 10_000


@dataclass(frozen=True)
class Sheet:
    """A part of a table that fits on a page: some columns of a block, each with a text for every heading per row."""

    title: str
    columns: list[str]
    rows: dict[str, list[str]]


class Layout:
    """A table ready to be shown.

    With `only_filled`, rows and columns without a number of ours are left out, and the notes; with `chosen`, columns
    that have neither one of these cells nor a number of ours.
    """

    def __init__(
        self,
        table: Table,
        ours: Mapping[Key, Ours],
        chosen: Collection[Key] | None = None,
        only_filled: bool = False,
    ) -> None:
        self.table, self.ours, self.chosen, self.only_filled = table, ours, chosen, only_filled
        self.cells = {cell.key: cell for cell in table.cells}
        self.marks: dict[tuple[str, ...], str] = {}
        self.compared = any(cell.paper for cell in table.cells)
        """Whether the paper has numbers for it: a figure has none."""

    @property
    def headline(self) -> str:
        """Name and title."""
        partial = " (PARTIAL)" if is_partial(self.table.cells, self.ours) else ""
        return f"{self.table.name}{partial}: {self.table.heading.title}"

    def sheets(self, columns: int) -> list[Sheet]:
        """Return the sheets, with at most `columns` of the paper's columns side by side."""
        self.marks.clear()
        sheets = []
        for block in dict.fromkeys(key[0] for key in self.cells):
            keys = [key for key in self.cells if key[0] == block]
            shown = [key for key in keys if key in self.ours] if self.only_filled else keys
            wanted = {key[2] for key in shown if self.chosen is None or key in self.chosen or key in self.ours}
            names = [column for column in dict.fromkeys(key[2] for key in keys) if column in wanted]
            # Extra rows appear with their first number.
            with_row = {key[1] for key in shown if not self.cells[key].extra or key in self.ours}
            rows = [row for row in dict.fromkeys(key[1] for key in keys) if row in with_row]
            for start in range(0, len(names), columns):
                part = names[start : start + columns]
                lines = {row: [text for name in part for text in self._texts((block, row, name))] for row in rows}
                sheets.append(Sheet(block, part, lines))
        return sheets

    def _texts(self, key: Key) -> Sequence[str]:
        """Return what is shown of a cell: the paper's number, ours and the difference, or ours alone."""
        paper, found = self.cells[key].paper if key in self.cells else None, self.ours.get(key)
        digits = self.table.heading.digits
        mine = difference = ""
        if found is not None:
            mine = with_std(found.mean, found.std, digits)
            if found.differs:
                number = len(self.marks)
                letter = chr(ord("a") + number % 26) * (1 + number // 26)
                mine += f" [{self.marks.setdefault(found.differs, letter)}]"
            difference = in_digits(found.mean - paper.mean, digits, "+") if paper else ""
        return (paper.shown(digits) if paper else "", mine, difference) if self.compared else (mine,)

    def remarks(self) -> list[str]:
        """Return explanations of the marks at our numbers (on the sheets made so far), and the notes."""
        remarks = [f"[{mark}] differs from the paper: {'; '.join(differs)}" for differs, mark in self.marks.items()]
        own = [cell.key for cell in self.table.cells if not cell.extra]
        missing = sum(key not in self.ours for key in own)
        if missing and not self.only_filled:
            whose = "the paper's" if self.compared else "the"
            remarks.append(f"{missing} of {whose} {len(own)} cells are not run (blank)")
        return [*remarks, *self._passing(), *([] if self.only_filled else self.table.heading.notes)]

    def _passing(self) -> Iterator[str]:
        """Say in which round the rows that the table asks for pass FedAvg's last accuracy, with all seeds' rounds."""
        prefix = self.table.passing if isinstance(self.table, TrainedTable) else ""
        for (block, row, column), found in self.ours.items():
            base = self.ours.get((block, "FedAvg", column))
            if not prefix or not row.startswith(prefix) or base is None or _rounds(found) < _rounds(base):
                continue
            if all(len(run.accuracies) >= LAST for run in base.runs):
                level = statistics.fmean(map(last_mean, base.runs))
                rounds = ", ".join(str(first_round_at(level, run) or "never") for run in found.runs)
                yield f"{column}: {row} passes FedAvg's mean of the last {LAST} rounds, {level:.2%}, in round {rounds}"


def _rounds(ours: Ours) -> int:
    return min((len(run.rows) for run in ours.runs), default=0)


def show(console: Console, table: Table, ours: Mapping[Key, Ours], chosen: Collection[Key] | None = None) -> None:
    """Print a table to the terminal, in parts that fit its width; only columns with a chosen cell."""
    layout = Layout(table, ours, chosen)
    unlimited = console.options.update(max_width=UNLIMITED)
    for columns in range(len({cell.key[2] for cell in table.cells}), 0, -1):
        parts = [_terminal_table(layout, sheet) for sheet in layout.sheets(columns)]
        if all(console.measure(part, options=unlimited).maximum <= console.width for part in parts):
            break
    console.print(Text(layout.headline), style="bold", highlight=False)
    for part in parts:
        console.print(part)
    for remark in layout.remarks():
        console.print(Text(remark), highlight=False, soft_wrap=True)


def _terminal_table(layout: Layout, sheet: Sheet) -> RichTable:
    unit = layout.table.heading.unit
    shown = RichTable(title=Text(sheet.title) if sheet.title else None, title_justify="left")
    shown.add_column(Text(f"[{unit}]" if unit else ""), overflow="fold")
    for column in sheet.columns:
        for heading in (f"{column}\npaper", "\nours", "\ndiff.") if layout.compared else (column,):
            shown.add_column(Text(heading), justify="right", no_wrap=True)
    for row, texts in sheet.rows.items():
        shown.add_row(Text(row), *map(Text, texts))
    return shown


def as_markdown(table: Table, ours: Mapping[Key, Ours], heading: str = "#", only_filled: bool = False) -> str:
    """Return the table as Markdown, with its remarks below."""
    layout = Layout(table, ours, only_filled=only_filled)
    unit = f"[{table.heading.unit}]" if table.heading.unit else ""
    suffixes = [": paper", ": ours", ": difference"] if layout.compared else [""]
    parts = [f"{heading} {layout.headline}\n"]
    for sheet in layout.sheets(MARKDOWN_COLUMNS):
        first = f"{sheet.title} [{table.heading.unit}]" if sheet.title else unit
        titles = [first, *(column + suffix for column in sheet.columns for suffix in suffixes)]
        lines = [_line(titles), "|---|" + "---:|" * (len(titles) - 1)]
        lines += [_line([row, *texts]) for row, texts in sheet.rows.items()]
        parts.append("\n".join(lines) + "\n")
    parts.append("".join(f"- {remark}\n" for remark in layout.remarks()))
    return "\n".join(part for part in parts if part)


def _line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def as_json(table: Table, ours: Mapping[Key, Ours]) -> dict[str, Any]:
    """Return a filled table as plain values, for JSON."""
    cells = []
    for cell in table.cells:
        (block, row, column), paper, found = cell.key, cell.paper, ours.get(cell.key)
        cells.append(
            {
                "block": block,
                "row": row,
                "column": column,
                "extra": cell.extra,
                "paper": asdict(paper) if paper else None,
                "ours": {"mean": found.mean, "std": found.std} if found else None,
                "difference": found.mean - paper.mean if found and paper else None,
                "differs": list(found.differs) if found else [],
                "runs": [str(run.path) for run in found.runs] if found else [],
            }
        )
    heading = table.heading
    about = {"recipe": heading.name, "title": heading.title, "label": heading.label, "unit": heading.unit}
    return {**about, "partial": is_partial(table.cells, ours), "cells": cells}
