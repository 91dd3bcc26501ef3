"""A row of metrics: the numbers of one finished round, one line of metrics.jsonl."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from fedsol.core.files import read_json_lines
from fedsol.errors import InputError

PRIVACY = ("epsilon", "delta", "unit", "noise")
"""The columns of a private run that every summary shows."""


class Row(TypedDict):
    """The metrics of a finished round. Shares are between 0 and 1; None means not evaluated.

    There is also `test_<metric>` for each of `task.metrics`, and `held_out_<metric>` for the first.
    """

    round: int
    test_accuracy: float | None
    test_loss: float | None
    train_loss: float | None
    clients: int
    """Clients whose updates were aggregated."""
    examples: int
    seconds: float
    bytes_up: int
    bytes_down: int
    rejected: int
    clipped: int
    dropped: int
    stragglers: int
    late: int
    corrupted: int
    restarted: NotRequired[int]
    client_ids: list[int]
    """Clients that were sampled."""
    class_accuracy: list[float | None] | None
    held_out_clients: NotRequired[int]
    held_out_accuracy: NotRequired[float | None]
    held_out_std: NotRequired[float | None]
    held_out_worst: NotRequired[float | None]
    validation_accuracy: NotRequired[float | None]
    """Only if there is a validation set."""
    validation_loss: NotRequired[float | None]
    validation_clients: NotRequired[int]
    """Clients that tested the model on validation sets of their own."""
    epsilon: NotRequired[float | None]
    """Only with `[privacy]` on: spent by all rounds so far; None (infinite) without noise."""
    delta: NotRequired[float]
    epsilon_next: NotRequired[float | None]
    """What one more round would make it."""
    releases: NotRequired[int]
    """How many rounds are paid for: in a deployment, those that were repeated too."""
    client_epsilon: NotRequired[list[float | None]]
    """With `privacy.level = "example"`: what each client of `client_ids` has spent."""
    client_epsilon_next: NotRequired[list[float | None]]
    """In a deployment, also: what one more job will make it."""
    clip_norm: NotRequired[float]
    unit: NotRequired[str]
    """Of whom: a client, or a sample of a client."""
    noise: NotRequired[str]
    """Where it comes from."""


def read_rows(path: Path, after: int = 0) -> list[Row]:
    """Return the rows of a metrics file after a round, which must be the next rounds; empty without a file."""
    rows = read_json_lines(path, after)
    for number, row in enumerate(rows, start=after + 1):
        if row.get("round") != number:
            raise InputError(f"{path}: line {number}: round must be {number} (got {row.get('round')!r})")
    return cast(list[Row], rows)


def rows_to_text(rows: Sequence[Row]) -> str:
    """Return rows as they are written in the file."""
    return "".join(json.dumps(row) + "\n" for row in rows)


class Rows(Sequence[Row]):
    """Rows, some of them still as lines of the file: each becomes a row when it is first asked for."""

    def __init__(self, rows: Iterable[Row | bytes] = ()) -> None:
        self._rows = list(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Rows(self._rows[index])
        if isinstance(row := self._rows[index], bytes):
            row = self._rows[index] = json.loads(row)
        return row

    def append(self, row: Row) -> None:
        """Add the next row."""
        self._rows.append(row)


def privacy_text(rows: Sequence[Row]) -> str:
    """Return what private rounds have spent, in words; empty without privacy."""
    if not rows or "epsilon" not in rows[-1]:
        return ""
    row = rows[-1]
    spent = "infinite, for want of noise" if row["epsilon"] is None else f"{row['epsilon']:.4g}"
    return f"epsilon = {spent} at delta = {row['delta']:g} for each {row['unit']}; {row['noise']}"
