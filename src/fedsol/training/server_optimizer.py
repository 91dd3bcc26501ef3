"""Server optimisers: the round's change of the global weights taken as a gradient. They combine with every method."""

from dataclasses import replace

from torch import Tensor

from fedsol.config.tables import ServerSettings
from fedsol.core.messages import ServerState, State
from fedsol.core.weights import prefixed, without_prefix

FIRST, SECOND = "first-moment", "second-moment"


def apply_server_optimizer(settings: ServerSettings, before: ServerState, after: ServerState) -> ServerState:
    """The server after the round, with the change `after - before` of the parameters passed through the optimiser.

    `momentum` is FedAvgM (Hsu et al., 2019), `adam` and `yogi` are FedAdam and FedYogi (Reddi et al., "Adaptive
    Federated Optimization", ICLR 2021, algorithm 2). Buffers and the algorithm's state stay as the algorithm left them.
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
    """FedAvgM sums the changes; FedAdam and FedYogi average them."""
    beta = settings.optimizer_momentum
    weight = 1.0 if settings.optimizer == "momentum" else 1 - beta
    return weight * change if moment is None else beta * moment + weight * change


def _second_moment(settings: ServerSettings, moment: Tensor | None, change: Tensor) -> Tensor:
    """Running size of the squared changes, starting from `epsilon^2`."""
    squared = change.square()
    old = squared.new_full(squared.shape, settings.optimizer_epsilon**2) if moment is None else moment
    if settings.optimizer == "yogi":
        return old - (1 - settings.optimizer_beta2) * squared * (old - squared).sign()
    return settings.optimizer_beta2 * old + (1 - settings.optimizer_beta2) * squared
