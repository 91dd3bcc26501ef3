"""Receipts: what travels in place of a client's state where the client keeps it to itself."""

import torch

from fedsol.messages import State

KEPT = "kept-since-round"


def receipt_for(state: State, round_number: int) -> State:
    """Stands for the state that a client had after a round (0: the initial one); nothing stands for no state."""
    return {KEPT: torch.tensor(round_number)} if state else {}


def round_of(receipt: State) -> int | None:
    """The round that a receipt is of; None if there is no state to keep."""
    return int(receipt[KEPT]) if KEPT in receipt else None
