"""Receipts: what travels in place of a client's state where the client keeps it to itself."""

import torch

from fedsol.core.messages import State

KEPT = "kept-since-round"


def receipt(round_number: int) -> State:
    """Stands for the state that a client had after a round (0: the initial one)."""
    return {KEPT: torch.tensor(round_number)}


def round_of(state: State) -> int | None:
    """The round that a receipt is of; None if this is none."""
    return int(state[KEPT]) if KEPT in state else None
