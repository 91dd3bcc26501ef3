"""Updates → clipped → summed → noised mean: all that a private round makes of what clients send."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsol.core.weights import Weights
from fedsol.privacy.noise import Draw

COUNT_SHARE = 0.1
"""The share of the budget that adaptive clipping spends on how many updates were short (as 1 / noise²)."""

ADAPTATION = 0.2
"""How fast an adaptive clipping norm moves (Andrew et al., 2021, section 3)."""


@dataclass(frozen=True)
class ClippedSum:
    """What a round knows of its updates before noise. Replacing one update changes `total` by up to twice the norm."""

    total: Weights
    """The sum of the clipped changes, in double precision."""
    short: int
    """How many changes were no longer than the norm."""
    count: int


def clipped_sum(anchor: Weights, updates: Sequence[Mapping[str, Tensor]], clip_norm: float) -> ClippedSum:
    """Return the sum of the updates' changes from the anchor, on its names, each at most `clip_norm` long."""
    total = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in anchor.items()}
    short = 0
    for weights in updates:
        change = {name: weights[name].double() - tensor.double() for name, tensor in anchor.items()}
        length = math.sqrt(sum(float(tensor.square().sum()) for tensor in change.values()))
        short += length <= clip_norm
        factor = min(1.0, clip_norm / length) if length else 0.0
        for name, tensor in change.items():
            total[name].add_(tensor, alpha=factor)
    return ClippedSum(total, short, len(updates))


@dataclass(frozen=True)
class Noise:
    """How much noise a release gets. Its multiplier covers everything that a round releases, together."""

    multiplier: float
    adaptive: bool = False

    @property
    def of_sum(self) -> float:
        """Standard deviation of the noise in the sum, in units of the clipping norm."""
        return self.multiplier / math.sqrt(1 - COUNT_SHARE) if self.adaptive else self.multiplier

    @property
    def of_count(self) -> float:
        """Standard deviation of the noise in the count of short updates: each adds or takes away one half."""
        return 0.5 * self.multiplier / math.sqrt(COUNT_SHARE)


def noised_mean(found: ClippedSum, clip_norm: float, noise: Noise, clients: int, draw: Draw) -> Weights:
    """Return the mean change over `clients`, who sent an update or not, with noise on the sum."""
    std = noise.of_sum * clip_norm
    return {name: (tensor + std * draw(tensor.shape)) / clients for name, tensor in found.total.items()}


def noised_share(found: ClippedSum, noise: Noise, clients: int, draw: Draw) -> float:
    """Return the share of short updates, with noise: each update counts 1/2 or -1/2, a missing one nothing."""
    counted = found.short - found.count / 2 + noise.of_count * float(draw([1]))
    return counted / clients + 0.5


def adapted(clip_norm: float, share: float, quantile: float) -> float:
    """Return the clipping norm of the next round, nearer to the quantile of the updates' lengths.

    Andrew et al., "Differentially Private Learning with Adaptive Clipping", NeurIPS 2021, algorithm 1. A round makes it
    at most e times longer or shorter: of few clients and much noise, the share may be anything.
    """
    return clip_norm * math.exp(min(1.0, max(-1.0, -ADAPTATION * (share - quantile))))
