"""Adaptive strength: Lambda of equation 7, layer by layer, after a round of local training."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import cast, get_args

import torch

from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.gradients import DEFAULT_STRENGTH, Strength, adaptive_lambda
from fedsol.core.messages import Update
from fedsol.core.weights import Weights

MOST_TOLD = 12
"""Layers whose Lambda is told one by one."""


@dataclass(frozen=True)
class LayerStrength:
    """One tensor of the model; means over the clients of a round."""

    size: int
    """Number of its weights."""
    mean: float
    """Mean of Lambda over the weights. Where n weights share a norm (all of them for `adaptive`, those of a column for
    `adaptive-column`) it is at most 1/sqrt(n), so a small n has a large one, whatever the weights did."""
    evenness: float
    """The mean times sqrt(n): 1 if the weights of each norm moved equally far, less the fewer of them moved."""
    movement: float | None
    """`||w - a|| / ||a||`: how far the tensor moved, relative to its length; None if it was 0 before."""


@dataclass(frozen=True)
class LayerStrengths:
    """Lambda by layer (FedSOL, figure "Effect of adaptive perturbation strength", part b)."""

    round: int
    strength: Strength
    clients: tuple[int, ...]
    layers: dict[str, LayerStrength]


def means_by_layer(seeds: Sequence[LayerStrengths]) -> str:
    """`head.weight 0.0079, …`: the mean of Lambda in every layer, of many layers the least and the most."""
    means = {name: fmean(seed.layers[name].mean for seed in seeds) for name in seeds[0].layers}
    told = [f"{name} {mean:.3g}" for name, mean in sorted(means.items(), key=lambda pair: pair[1])]
    return ", ".join(told) if len(told) <= MOST_TOLD else f"{told[0]} to {told[-1]}"


def own_strength(algorithm: Algorithm) -> Strength | None:
    """The Lambda that a method perturbs with; None if it perturbs nothing, or not by a Lambda."""
    own = getattr(algorithm, "strength", None)
    if own not in get_args(Strength) or "strength" in algorithm.settings_without_effect():
        return None
    return cast(Strength, own)


def common_strength(algorithms: Iterable[Algorithm]) -> Strength:
    """One Lambda to show several methods by: their own where they agree (those that have none go along)."""
    own = {strength for algorithm in algorithms if (strength := own_strength(algorithm)) is not None}
    return own.pop() if len(own) == 1 else DEFAULT_STRENGTH


def strengths(
    round_number: int,
    before: Weights,
    updates: Sequence[Update],
    names: Sequence[str],
    strength: Strength,
) -> LayerStrengths:
    """Lambda of every trained tensor at the clients' weights; the anchor is the global model they started from."""
    layers = {name: _layer(before[name], [update.weights[name] for update in updates], strength) for name in names}
    return LayerStrengths(round_number, strength, tuple(update.client for update in updates), layers)


def _layer(anchor: torch.Tensor, local: Sequence[torch.Tensor], strength: Strength) -> LayerStrength:
    moves = [weights - anchor for weights in local]
    means = [1.0 if strength == "fixed" else float(adaptive_lambda(move, strength).double().mean()) for move in moves]
    mean = sum(means) / len(means)
    length = float(torch.linalg.vector_norm(anchor.double()))
    lengths = [float(torch.linalg.vector_norm(move.double())) for move in moves]
    movement = sum(lengths) / len(lengths) / length if length > 0 else None
    return LayerStrength(anchor.numel(), mean, mean * math.sqrt(_sharing_a_norm(anchor, strength)), movement)


def _sharing_a_norm(tensor: torch.Tensor, strength: Strength) -> int:
    """How many weights of a tensor are divided by one norm."""
    if strength == "fixed" or tensor.dim() == 0:
        return 1
    return tensor.shape[0] if strength == "adaptive-column" else tensor.numel()
