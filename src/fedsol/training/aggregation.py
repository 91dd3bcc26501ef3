"""From a round's updates to new global weights: aggregation (the method's or a robust one) and server optimizers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedsol.algorithms.base import Algorithm
from fedsol.config.tables import ServerSettings
from fedsol.core.messages import ServerState, State, Update
from fedsol.core.weights import Weights, mean, prefixed, without_prefix

FIRST, SECOND = "first-moment", "second-moment"

CHUNK = 2**16
"""Coordinates whose distances are computed at once."""

TOLERANCE, MOST_STEPS = 1e-8, 1000
"""The geometric median is found when a step changes no share by more than this, or after this many steps."""

SMOOTHING = 1e-6
"""Distances below this share of the median distance between updates count as that, so that none divides by 0."""


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
    """Combine weights of which some may be hostile; client sizes, which may be lies, are ignored. Counters are copied.

    The median and the trimmed mean of each coordinate: Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018,
    definitions 1 and 2. Krum and the geometric median are averages with shares that follow from the distances.
    """
    if settings.aggregation == "krum":
        return mean(weights, krum_shares(squared_distances(weights), settings.trim))
    if settings.aggregation == "geometric-median":
        return mean(weights, geometric_median_shares(squared_distances(weights)))
    combine = _median if settings.aggregation == "median" else _trimmed_mean(settings.trim)
    return {
        name: combine(torch.stack([one[name] for one in weights])) if tensor.is_floating_point() else tensor.clone()
        for name, tensor in weights[0].items()
    }


def squared_distances(weights: Sequence[Weights]) -> Tensor:
    """Return the squared distance of each pair in double precision, over all tensors together, buffers included."""
    found = torch.zeros(len(weights), len(weights), dtype=torch.float64)
    for name, tensor in weights[0].items():
        for start in range(0, tensor.numel() if tensor.is_floating_point() else 0, CHUNK):
            points = torch.stack([one[name].flatten()[start : start + CHUNK] for one in weights]).double()
            for number, point in enumerate(points):
                found[number] += (points - point).square().sum(dim=1)
    return found


def krum_shares(distances: Tensor, faulty_share: float) -> list[float]:
    """Return equal shares for the updates that are nearest to their neighbors, 0 for the others.

    Multi-Krum: Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS
    2017, section 4. Of n updates f are taken for faulty, no more than its condition n > 2 f + 2 allows; the score of an
    update is the sum of the squared distances to its n - f - 2 nearest; the n - f of the lowest scores are averaged. If
    f is 0, that is the mean of all.
    """
    count = len(distances)
    faulty = max(0, min(math.ceil(faulty_share * count - 1e-9), (count - 3) // 2))
    neighbors = max(0, count - faulty - 2)
    scores = distances.sort(dim=1).values[:, 1 : 1 + neighbors].sum(dim=1)
    chosen = set(scores.argsort(stable=True)[: count - faulty].tolist())
    return [1 / len(chosen) if number in chosen else 0.0 for number in range(count)]


def geometric_median_shares(distances: Tensor) -> list[float]:
    """Return the shares with which the updates average to their geometric median, the point of least total distance.

    Weiszfeld's algorithm, smoothed, as in Pillutla et al., "Robust Aggregation for Federated Learning", 2019, algorithm
    2, with equal weights. Every iterate is an average of the updates, and its squared distance to update i is
    `sum_j s_j d_ij - sum_jk s_j s_k d_jk / 2`, so the distances of the updates are all that it takes.
    """
    count = len(distances)
    shares = torch.full((count,), 1 / count, dtype=torch.float64)
    positive = distances[distances > 0].sort().values
    if not len(positive):
        return [float(share) for share in shares]
    shortest = SMOOTHING * positive[(len(positive) - 1) // 2].sqrt()
    for _ in range(MOST_STEPS):
        squared = distances @ shares - shares @ distances @ shares / 2
        inverse = 1 / squared.clamp(min=0).sqrt().clamp(min=shortest)
        before, shares = shares, inverse / inverse.sum()
        if float((shares - before).abs().max()) <= TOLERANCE:
            break
    return [float(share) for share in shares]


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
    Buffers and the algorithm's state are not changed. `average` moves the parameters by `server.lr` of the change.
    """
    if settings.optimizer == "average":
        return after if settings.lr == 1 else _moved(settings.lr, before, after)
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


def _moved(lr: float, before: ServerState, after: ServerState) -> ServerState:
    start = before.weights
    moved = {name: start[name] + lr * (after.weights[name] - start[name]) for name in before.parameters}
    return replace(after, weights={**after.weights, **moved})


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
