"""Rows of measurements, whatever their keys, as columns that a chart can draw."""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

NOT_MEASUREMENTS = frozenset({"client_ids"})
NOT_ANALYSED = frozenset({"client", "clients", "client_ids", "size"})
"""In the rows of an analysis: who was measured, and how large a layer is."""
MOST_CELLS = 60_000
"""Cells of one heat map; a longer one keeps every second, third, … row."""


def to_columns(rows: Sequence[Row], left_out: Collection[str] = NOT_MEASUREMENTS) -> dict[str, Any]:
    """Rows (one per round, or several) as `{"x": rounds, "series": …, "spreads": …, "heat": …}`.

    Numbers make a series. Several numbers in one round, be it as a list or in several rows, make a spread (lowest,
    mean, highest); a list by class makes a row of a heat map. Tables are taken apart: `{"layer": {"a": 1}}` is
    `layer.a`. Texts and the keys `left_out` are left out.
    """
    rounds: dict[Any, list[dict[str, Any]]] = {}
    for number, row in enumerate(rows, start=1):
        values = dict(_leaves(row, left_out))
        rounds.setdefault(values.pop("round", number), []).append(values)
    keys = list(dict.fromkeys(key for group in rounds.values() for row in group for key in row))
    columns: dict[str, Any] = {"x": list(rounds), "series": {}, "spreads": {}, "heat": {}}
    for key in keys:
        cells = [[row[key] for row in group if row.get(key) is not None] for group in rounds.values()]
        kind, column = _column(key, cells)
        if column is not None:
            columns[kind][key] = column
    return columns


def number(value: float) -> float | int | None:
    """A number with six significant digits, None if it is not finite: what a page can hold and show."""
    if isinstance(value, int):
        return value
    if not math.isfinite(value):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _leaves(row: Row, left_out: Collection[str], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, left_out, f"{prefix}{key}.")
        elif key not in left_out:
            yield prefix + key, value


def _column(key: str, cells: list[list[Any]]) -> tuple[str, Any]:
    """The kind of a column and its content; None if there is nothing to draw."""
    present = [value for cell in cells for value in cell]
    if not present:
        return "series", None
    if all(_is_number(value) for value in present):
        if any(len(cell) > 1 for cell in cells):
            return "spreads", [_spread(cell) for cell in cells]
        return "series", [number(cell[0]) if cell else None for cell in cells]
    if all(isinstance(value, list) and _all_numbers(value) for value in present):
        if "class" in key.rpartition(".")[2]:
            return "heat", _heat([cell[0] if cell else None for cell in cells])
        return "spreads", [_spread([item for value in cell for item in value]) for cell in cells]
    return "series", None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _all_numbers(values: list[Any]) -> bool:
    return all(value is None or _is_number(value) for value in values)


def _spread(values: list[float | None]) -> list[float | int | None] | None:
    """Lowest, mean and highest."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return [number(min(known)), number(statistics.fmean(known)), number(max(known))] if known else None


def _heat(lists: list[list[float | None] | None]) -> dict[str, Any] | None:
    """Shares by class in thousandths (-1: none), of the rounds at `rows`, thinned out where there are too many."""
    rows = [index for index, values in enumerate(lists) if values]
    width = max((len(lists[index] or []) for index in rows), default=0)
    if not width:
        return None
    step = max(1, -(-len(rows) * width // MOST_CELLS))
    rows = rows[::-step][::-1]  # the last row always stays
    return {
        "rows": rows,
        "width": width,
        "values": [value for index in rows for value in _thousandths(lists[index] or [], width)],
    }


def _thousandths(values: list[float | None], width: int) -> list[int]:
    padded = [*values, *[None] * (width - len(values))]
    return [-1 if value is None or not math.isfinite(value) else round(1000 * value) for value in padded]
