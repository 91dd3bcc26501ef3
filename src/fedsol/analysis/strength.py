"""Adaptive strength: Lambda of equation 7, layer by layer, after a round of local training."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedsol.gradients import Strength, adaptive_lambda
from fedsol.messages import Update
from fedsol.weights import Weights


@dataclass(frozen=True)
class LayerStrength:
    """One tensor of the model; means over the clients of a round."""

    size: int
    """Number of its weights."""
    mean: float
    """Mean of Lambda over the weights. For `adaptive` it lies between 1/size and 1/sqrt(size), so a small tensor has a
    large one, whatever it did."""
    evenness: float
    """The mean times sqrt(size): 1 if all its weights moved equally far, less the fewer of them moved (`adaptive`)."""
    movement: float | None
    """`||w - a|| / ||a||`: how far the tensor moved, relative to its length; None if it was 0 before."""


@dataclass(frozen=True)
class LayerStrengths:
    """Lambda by layer (FedSOL, figure "Effect of adaptive perturbation strength", part b)."""

    round: int
    strength: Strength
    clients: tuple[int, ...]
    layers: dict[str, LayerStrength]


def strengths(
    round_number: int,
    before: Weights,
    updates: Sequence[Update],
    names: Sequence[str],
    strength: Strength = "adaptive",
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
    return LayerStrength(anchor.numel(), mean, mean * math.sqrt(anchor.numel()), movement)
