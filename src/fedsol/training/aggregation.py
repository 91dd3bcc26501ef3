"""From a round's updates to new global weights: aggregation (the method's or a robust one) and server optimizers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedsol.algorithms.base import Algorithm
from fedsol.config.tables import ServerSettings
from fedsol.core.messages import ServerState, State, Update
from fedsol.core.weights import Weights, prefixed, without_prefix

FIRST, SECOND = "first-moment", "second-moment"


def aggregate(
    settings: ServerSettings, algorithm: Algorithm, before: ServerState, updates: Sequence[Update]
) -> ServerState:
    """Return the server after a round."""
    if settings.aggregation == "mean":
        after = algorithm.aggregate(before, updates)
    else:
        after = replace(before, weights=robust_average(settings, [update.weights for update in updates]))
    return apply_server_optimizer(settings, before, after)


def robust_average(settings: ServerSettings, weights: Sequence[Weights]) -> Weights:
    """Return the median or the trimmed mean of each coordinate; client sizes are ignored.

    Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018, definitions 1 and 2. Counters are copied.
    """
    combine = _median if settings.aggregation == "median" else _trimmed_mean(settings.trim)
    return {
        name: combine(torch.stack([one[name] for one in weights])) if tensor.is_floating_point() else tensor.clone()
        for name, tensor in weights[0].items()
    }


def _median(values: Tensor) -> Tensor:
    """Return the median; for an even number of values, the mean of the middle two."""
    ordered = values.sort(dim=0).values
    count = len(values)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


def _trimmed_mean(trim: float) -> Callable[[Tensor], Tensor]:
    def combine(values: Tensor) -> Tensor:
        cut = min(math.ceil(trim * len(values) - 1e-9), (len(values) - 1) // 2)
        return values.sort(dim=0).values[cut : len(values) - cut].mean(dim=0)

    return combine


def apply_server_optimizer(settings: ServerSettings, before: ServerState, after: ServerState) -> ServerState:
    """Return the server after the round, its change `after - before` of the parameters taken as a gradient.

    `momentum` is FedAvgM (Hsu et al., 2019), `adam` and `yogi` are FedAdam and FedYogi (Reddi et al., "Adaptive
    Federated Optimization", ICLR 2021, algorithm 2). They combine with every method.
    Buffers and the algorithm's state are not changed.
    """
    if settings.optimizer == "average":
        return after
    lr = settings.optimizer_lr or (1.0 if settings.optimizer == "momentum" else 0.01)
    first, second = without_prefix(FIRST, before.optimizer), without_prefix(SECOND, before.optimizer)
    weights = dict(after.weights)
    for name in before.parameters:
        change = after.weights[name] - before.weights[name]
        first[name] = _first_moment(settings, first.get(name), change)
        step = first[name]
        if settings.optimizer != "momentum":
            second[name] = _second_moment(settings, second.get(name), change)
            step = step / (second[name].sqrt() + settings.optimizer_epsilon)
        weights[name] = before.weights[name] + lr * step
    state: State = {**prefixed(FIRST, first), **prefixed(SECOND, second)}
    return replace(after, weights=weights, optimizer=state)


def _first_moment(settings: ServerSettings, moment: Tensor | None, change: Tensor) -> Tensor:
    """Return the sum of the changes (FedAvgM) or their running mean (FedAdam, FedYogi)."""
    beta = settings.optimizer_momentum
    weight = 1.0 if settings.optimizer == "momentum" else 1 - beta
    return weight * change if moment is None else beta * moment + weight * change


def _second_moment(settings: ServerSettings, moment: Tensor | None, change: Tensor) -> Tensor:
    """Return the running size of the squared changes, which starts at `epsilon^2`."""
    squared = change.square()
    old = squared.new_full(squared.shape, settings.optimizer_epsilon**2) if moment is None else moment
    if settings.optimizer == "yogi":
        return old - (1 - settings.optimizer_beta2) * squared * (old - squared).sign()
    return settings.optimizer_beta2 * old + (1 - settings.optimizer_beta2) * squared
