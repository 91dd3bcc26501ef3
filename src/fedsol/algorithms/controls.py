"""Control variates, and the mean gradient that clients applied: what several methods share."""

from collections.abc import Sequence

import torch

from fedsol.algorithms.proximal_base import Usage
from fedsol.algorithms.task import Task
from fedsol.core.messages import ServerState, State, Update
from fedsol.core.weights import Weights, add, mean, pick, prefixed, scale, subtract, without_prefix, zeros

GLOBAL, OWN, CORRECTION = "global-control", "control", "correction"
CHANGE, FACTOR = "control-change", "factor"
MOMENTUM = "momentum"


def momentum_steps(steps: int, momentum: float) -> float:
    """Return how many plain SGD steps `steps` steps with momentum amount to (FedNova, section 4.1).

    `(t - m (1 - m^t) / (1 - m)) / (1 - m)`: each gradient counts once for each step in which momentum applies it.
    """
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def initial(prefix: str, parameters: Weights) -> State:
    """Return zeros: a control variate, or another vector of the model's size, before the first round."""
    return prefixed(prefix, zeros(parameters))


def with_correction(broadcast: State, state: State) -> State:
    """Return the client's view of its job, with `c - c_i` computed once for all steps."""
    own, everyone = without_prefix(OWN, state), without_prefix(GLOBAL, broadcast)
    return {**broadcast, **state, **prefixed(CORRECTION, subtract(everyone, own))}


def correction(state: State) -> Weights:
    """Return `c - c_i`, which the method adds to the local gradient."""
    return without_prefix(CORRECTION, state)


def renewed(task: Task, weights: Weights, effective_steps: float, state: State, usage: Usage) -> tuple[State, State]:
    """Return the client's new control variate, and the payload that tells the server its change.

    `(a - w) / (K lr)` is the mean gradient that was applied. If the correction was added to it (the usage `auxiliary`),
    it is taken out again: SCAFFOLD, equation 4, option II. The change `c_i_new - c_i` is then `(a - w) / (K lr) - c`,
    which the server can work out from the weights: only the factor `1 / (K lr)` is sent.
    """
    applied = scale(subtract(task.anchor, weights), 1 / (effective_steps * task.lr))
    if usage == "auxiliary":
        return prefixed(OWN, subtract(applied, correction(state))), factor_of(task, effective_steps)
    return prefixed(OWN, applied), prefixed(CHANGE, subtract(applied, without_prefix(OWN, state)))


def factor_of(task: Task, effective_steps: float) -> State:
    """Return a payload with the factor `1 / (K lr)`."""
    return {FACTOR: torch.tensor(1 / (effective_steps * task.lr), dtype=torch.float64)}


def applied_gradient(server: ServerState, update: Update) -> Weights:
    """Return `(a - w_i) / (K_i lr)`, the mean gradient that a client applied."""
    moved = subtract(pick(server.weights, server.parameters), update.weights)
    return scale(moved, float(update.payload[FACTOR]))


def mean_applied(server: ServerState, updates: Sequence[Update]) -> State:
    """Return `D = mean_S (a - w_i) / (K_i lr)` (FedCM): a mean over clients, not by shares."""
    applied = [applied_gradient(server, update) for update in updates]
    return prefixed(MOMENTUM, mean(applied, [1 / len(updates)] * len(updates)))


def server_control(server: ServerState, updates: Sequence[Update]) -> State:
    """Return `c + |S| / N mean_S (c_i_new - c_i)` (SCAFFOLD, equation 5): a mean over clients, not by shares."""
    control = without_prefix(GLOBAL, server.state)
    renewed_control = control
    for update in updates:
        renewed_control = add(renewed_control, _change(server, control, update), 1 / server.clients)
    return prefixed(GLOBAL, renewed_control)


def _change(server: ServerState, control: Weights, update: Update) -> Weights:
    if FACTOR not in update.payload:
        return without_prefix(CHANGE, update.payload)
    return subtract(applied_gradient(server, update), control)
