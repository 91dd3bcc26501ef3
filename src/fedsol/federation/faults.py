"""Simulated faults of clients (`[faults]`): dropout, partial work, late updates and corrupted ones."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedsol.config.tables import FaultSettings
from fedsol.core.messages import Update
from fedsol.core.randomness import generator_for
from fedsol.core.weights import Weights


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one client in one round."""

    dropped: bool = False
    """Whether it never answers."""
    work: float = 1.0
    """The share of its local steps that it does."""
    late: bool = False
    """Whether its update arrives in the next round."""
    corrupted: bool = False
    """Whether its update is damaged."""


def plan(settings: FaultSettings, seed: int, round_number: int, clients: Iterable[int]) -> dict[int, Fault]:
    """Return the faults of a round, which depend only on seed, round and client, so every method has the same ones."""
    faults = {}
    for client in clients:
        draws = torch.rand(4, generator=generator_for(seed, "faults", round_number, client)).tolist()
        faults[client] = Fault(
            dropped=draws[0] < settings.dropout,
            work=settings.straggler_work if draws[1] < settings.stragglers else 1.0,
            late=draws[2] < settings.late,
            corrupted=draws[3] < settings.corrupted,
        )
    return faults


def corrupt(update: Update, anchor: Weights, settings: FaultSettings, generator: torch.Generator) -> Update:
    """Return the update as a broken or hostile client would send it."""

    def damaged(name: str, tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        if settings.corruption == "nan":
            return torch.full_like(tensor, float("nan"))
        if settings.corruption == "flip":
            return anchor[name] - settings.corruption_scale * (tensor - anchor[name])
        return tensor + settings.corruption_scale * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)

    return replace(update, weights={name: damaged(name, tensor) for name, tensor in update.weights.items()})
