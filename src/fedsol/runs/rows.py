"""A row of metrics: the numbers of one finished round, one line of metrics.jsonl."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict, cast

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


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a metrics file, which must be rounds 1, 2, …; empty without a file."""
    rows = read_json_lines(path)
    for number, row in enumerate(rows, start=1):
        if row.get("round") != number:
            raise InputError(f"{path}: line {number}: round must be {number} (got {row.get('round')!r})")
    return cast(list[Row], rows)


def rows_to_text(rows: Sequence[Row]) -> str:
    """Return rows as they are written in the file."""
    return "".join(json.dumps(row) + "\n" for row in rows)


class RowsHash:
    """The SHA-256 of rows as they are written in the file; a new row is added to it without reading the others."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._hash = hashlib.sha256()
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Add the next row."""
        self._hash.update(rows_to_text([row]).encode())

    @property
    def text(self) -> str:
        """The hash of the rows so far."""
        return self._hash.hexdigest()


def privacy_text(rows: Sequence[Row]) -> str:
    """Return what private rounds have spent, in words; empty without privacy."""
    if not rows or "epsilon" not in rows[-1]:
        return ""
    row = rows[-1]
    spent = "infinite, for want of noise" if row["epsilon"] is None else f"{row['epsilon']:.4g}"
    return f"epsilon = {spent} at delta = {row['delta']:g} for each {row['unit']}; {row['noise']}"
