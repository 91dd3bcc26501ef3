"""Simulated faults and attacks of clients (`[faults]`): dropout, partial work, late updates and corrupted ones."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedsol.config.experiment import Experiment
from fedsol.config.tables import FaultSettings
from fedsol.core.messages import Update
from fedsol.core.randomness import generator_for
from fedsol.core.weights import Weights
from fedsol.data.types import Dataset

LABELS, COLLUSION = "label-flip", "little-is-enough"
"""The corruptions that happen before an update is made, and when all others are known."""


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


def plan(experiment: Experiment, clients: Iterable[int], round_number: int, total: int) -> dict[int, Fault]:
    """Return the faults of a round, which depend only on seed, round and client, so every method has the same ones.

    `total` is the number of all clients, of which `faults.attackers` are drawn once.
    """
    settings, seed, faults = experiment.faults, experiment.seed, {}
    hostile = attackers(settings, seed, total)
    for client in clients:
        draws = torch.rand(4, generator=generator_for(seed, "faults", round_number, client)).tolist()
        corrupted = draws[3] < settings.corrupted or client in hostile
        faults[client] = Fault(
            dropped=draws[0] < settings.dropout,
            work=settings.straggler_work if draws[1] < settings.stragglers else 1.0,
            late=draws[2] < settings.late and not (corrupted and settings.corruption == COLLUSION),
            corrupted=corrupted,
        )
    return faults


def attackers(settings: FaultSettings, seed: int, total: int) -> frozenset[int]:
    """Return the clients that are hostile in every round."""
    if not settings.attackers:
        return frozenset()
    order = torch.randperm(total, generator=generator_for(seed, "attackers"))
    return frozenset(order[: round(settings.attackers * total)].tolist())


def with_flipped_labels(dataset: Dataset) -> Dataset:
    """Return the dataset as a client has it whose labels are all wrong: the last class for the first, and so on."""
    train = dataset.train
    return replace(dataset, train=replace(train, labels=dataset.classes - 1 - train.labels))


def collude(honest: Sequence[Weights], scale: float) -> Weights:
    """Return what all attackers send: the mean of the honest weights less `scale` standard deviations of each.

    Baruch et al., "A Little Is Enough: Circumventing Defenses For Distributed Learning", NeurIPS 2019: a change that
    hides in the spread of the honest ones. Here attackers know these, where those of the paper estimate them from their
    own. Counters are copied.
    """

    def worst(tensors: list[Tensor]) -> Tensor:
        stacked = torch.stack(tensors)
        return stacked.mean(dim=0) - scale * stacked.std(dim=0, correction=0)

    return {
        name: worst([one[name] for one in honest]) if tensor.is_floating_point() else tensor
        for name, tensor in honest[0].items()
    }


def corrupt(update: Update, anchor: Weights, settings: FaultSettings, generator: torch.Generator) -> Update:
    """Return the update as a broken or hostile client would send it; some kinds are not made of the update alone."""
    if settings.corruption in (LABELS, COLLUSION):
        return update

    def damaged(name: str, tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        if settings.corruption == "nan":
            return torch.full_like(tensor, float("nan"))
        if settings.corruption == "flip":
            return anchor[name] - settings.corruption_scale * (tensor - anchor[name])
        return tensor + settings.corruption_scale * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)

    return replace(update, weights={name: damaged(name, tensor) for name, tensor in update.weights.items()})
