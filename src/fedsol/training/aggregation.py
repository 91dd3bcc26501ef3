"""From a round's updates to new global weights: aggregation (the method's or a robust one), the optimiser."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedsol.algorithms.base import Algorithm
from fedsol.config.tables import ServerSettings
from fedsol.core.messages import ServerState, Update
from fedsol.core.weights import Weights
from fedsol.training.server_optimizer import apply_server_optimizer


def aggregate(
    settings: ServerSettings, algorithm: Algorithm, before: ServerState, updates: Sequence[Update]
) -> ServerState:
    """The server after a round."""
    if settings.aggregation == "mean":
        after = algorithm.aggregate(before, updates)
    else:
        after = replace(before, weights=robust_average(settings, [update.weights for update in updates]))
    return apply_server_optimizer(settings, before, after)


def robust_average(settings: ServerSettings, weights: Sequence[Weights]) -> Weights:
    """Coordinate by coordinate, whatever the clients' sizes: the median, or the mean without the extremes.

    Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018, definitions 1 and 2. Counters are copied.
    """
    combine = _median if settings.aggregation == "median" else _trimmed_mean(settings.trim)
    return {
        name: combine(torch.stack([one[name] for one in weights])) if tensor.is_floating_point() else tensor.clone()
        for name, tensor in weights[0].items()
    }


def _median(values: Tensor) -> Tensor:
    """The mean of the two in the middle if their number is even."""
    ordered = values.sort(dim=0).values
    count = len(values)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


def _trimmed_mean(trim: float) -> Callable[[Tensor], Tensor]:
    def combine(values: Tensor) -> Tensor:
        cut = min(math.ceil(trim * len(values) - 1e-9), (len(values) - 1) // 2)
        return values.sort(dim=0).values[cut : len(values) - cut].mean(dim=0)

    return combine
