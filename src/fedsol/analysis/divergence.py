"""Weight divergence: how far local training moves the clients from the global model and from each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsol.core.messages import Update
from fedsol.core.weights import Weights


@dataclass(frozen=True)
class Divergence:
    """Euclidean distances after one round of local training (FedSOL, section 5, "Weight Divergence")."""

    round: int
    clients: tuple[int, ...]
    to_global: tuple[float, ...]
    """`||w_g - w_k||` of each client."""
    between: tuple[float, ...]
    """Mean of `||w_k - w_j||` over the other clients j, for each client; empty for a single client."""
    layers_to_global: dict[str, float]
    """The same for each tensor alone: means over the clients."""
    layers_between: dict[str, float]

    @property
    def global_local(self) -> float:
        """Mean over the clients."""
        return sum(self.to_global) / len(self.to_global)

    @property
    def local_local(self) -> float | None:
        """Mean over all pairs of clients; None for a single client."""
        return sum(self.between) / len(self.between) if self.between else None


def divergence(round_number: int, before: Weights, updates: Sequence[Update], names: Sequence[str]) -> Divergence:
    """Distances of the updates' weights over the named tensors (the trained ones)."""
    to_global = {name: _to_global(before[name], updates, name) for name in names}
    between = {name: _between(updates, name) for name in names}
    pairs = len(updates) > 1
    return Divergence(
        round_number,
        tuple(update.client for update in updates),
        tuple(_root_of_squares(to_global).tolist()),
        tuple(_mean_of_others(_root_of_squares(between)).tolist()) if pairs else (),
        {name: float(distances.mean()) for name, distances in to_global.items()},
        {name: float(_mean_of_others(distances).mean()) for name, distances in between.items()} if pairs else {},
    )


def _to_global(anchor: Tensor, updates: Sequence[Update], name: str) -> Tensor:
    return torch.stack([torch.linalg.vector_norm((update.weights[name] - anchor).double()) for update in updates])


def _between(updates: Sequence[Update], name: str) -> Tensor:
    """Distances of all pairs. By differences, not by the formula with products, which loses what is small."""
    flat = torch.stack([update.weights[name].double().flatten() for update in updates])
    return torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")


def _root_of_squares(distances: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([part.square() for part in distances.values()]).sum(dim=0).sqrt()


def _mean_of_others(distances: Tensor) -> Tensor:
    return distances.sum(dim=1) / (len(distances) - 1)
