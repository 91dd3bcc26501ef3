"""Turn rows of measurements, whatever their keys, into columns that a chart can draw."""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fedsol.config.overrides import flatten

NOT_IN_METRICS = frozenset({"client_ids"})
NOT_IN_ANALYSES = frozenset({"client", "clients", "client_ids", "size"})
"""Keys that are not measurements: which clients, and the size of a layer."""
MAX_PIXELS = 60_000
"""Of one heat map; a longer one shows every second, third, … round."""


def to_columns(rows: Sequence[Mapping[str, Any]], ignored: Collection[str] = NOT_IN_METRICS) -> dict[str, Any]:
    """Return rows (one or more per round) as `{"x": rounds, "series": …, "spreads": …, "heat": …}`.

    Numbers make a series. Several numbers in one round, as a list or in several rows, make a spread (lowest, mean,
    highest). A list by class makes a row of a heat map. Tables are flattened: `{"layer": {"a": 1}}` is `layer.a`.
    Texts and `ignored` keys are skipped.
    """
    rounds: dict[Any, list[dict[str, Any]]] = {}
    for count, row in enumerate(rows, start=1):
        values = {key: value for key, value in flatten(row).items() if key.rpartition(".")[2] not in ignored}
        rounds.setdefault(values.pop("round", count), []).append(values)
    columns: dict[str, Any] = {"x": list(rounds), "series": {}, "spreads": {}, "heat": {}}
    for key in dict.fromkeys(key for group in rounds.values() for row in group for key in row):
        by_round = [[row[key] for row in group if row.get(key) is not None] for group in rounds.values()]
        kind, column = _column(key, by_round)
        if column is not None:
            columns[kind][key] = column
    return columns


def number(value: float | None) -> float | int | None:
    """Return a number with six significant digits; None if it is missing or not finite."""
    if value is None or isinstance(value, int):
        return value
    if not math.isfinite(value):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _column(key: str, by_round: list[list[Any]]) -> tuple[str, Any]:
    """Return the kind of a column and its content; None if there is nothing to draw."""
    values = [value for found in by_round for value in found]
    if values and all(map(_is_number, values)):
        if any(len(found) > 1 for found in by_round):
            return "spreads", [_spread(found) for found in by_round]
        return "series", [number(found[0]) if found else None for found in by_round]
    if values and all(isinstance(one, list) and all(v is None or _is_number(v) for v in one) for one in values):
        if "class" in key.rpartition(".")[2]:
            return "heat", _heat([found[0] if found else [] for found in by_round])
        return "spreads", [_spread([item for value in found for item in value]) for found in by_round]
    return "series", None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _spread(values: list[float | None]) -> list[float | int | None] | None:
    """Return the lowest, the mean and the highest."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return [number(min(known)), number(statistics.fmean(known)), number(max(known))] if known else None


def _heat(lists: list[list[float | None]]) -> dict[str, Any] | None:
    """Return shares by class in thousandths (-1: missing) of the rounds at `rows`, thinned out if there are many."""
    width = max(map(len, lists), default=0)
    if not width:
        return None
    rows = [index for index, values in enumerate(lists) if values]
    rows = rows[:: -max(1, -(-len(rows) * width // MAX_PIXELS))][::-1]  # the last row always stays
    padded = [value for index in rows for value in [*lists[index], *[None] * (width - len(lists[index]))]]
    values = [-1 if value is None or not math.isfinite(value) else round(1000 * value) for value in padded]
    return {"rows": rows, "width": width, "values": values}
