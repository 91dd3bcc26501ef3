"""Control variates: what SCAFFOLD and FedNova share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedsol.messages import ServerState, State, Update
from fedsol.weights import Weights, add, mean, prefixed, scale, subtract, without_prefix, zeros

if TYPE_CHECKING:
    from fedsol.task import Task

GLOBAL, OWN, CHANGE, CORRECTION = "global-control", "control", "control-change", "correction"


def momentum_steps(steps: int, momentum: float) -> float:
    """How many plain SGD steps `steps` steps with momentum amount to (FedNova, section 4.1).

    `(t - m (1 - m^t) / (1 - m)) / (1 - m)`: each gradient counts as often as momentum still applies it.
    """
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def initial(prefix: str, parameters: Weights) -> State:
    """A control variate of zeros."""
    return prefixed(prefix, zeros(parameters))


def with_correction(broadcast: State, state: State) -> State:
    """The client's view of its job, with `c - c_i` computed once for all steps."""
    own, everyone = without_prefix(OWN, state), without_prefix(GLOBAL, broadcast)
    return {**broadcast, **state, **prefixed(CORRECTION, subtract(everyone, own))}


def correction(state: State) -> Weights:
    """`c - c_i`, what the method adds to the local gradient."""
    return without_prefix(CORRECTION, state)


def renewed(task: Task, weights: Weights, effective_steps: float, state: State, was_added: bool) -> tuple[State, State]:
    """The client's new control variate and its change, which the server needs.

    `(a - w) / (K lr)` is the mean gradient that was applied. If the correction was added to it (`was_added`), it is
    taken out again: SCAFFOLD, equation 4, option II.
    """
    own = without_prefix(OWN, state)
    applied = scale(subtract(task.anchor, weights), 1 / (effective_steps * task.lr))
    new = subtract(applied, correction(state)) if was_added else applied
    return prefixed(OWN, new), prefixed(CHANGE, subtract(new, own))


def server_control(server: ServerState, updates: Sequence[Update]) -> State:
    """`c + |S| / N mean_S (c_i_new - c_i)` (SCAFFOLD, equation 5)."""
    changes = [without_prefix(CHANGE, update.payload) for update in updates]
    average = mean(changes, [1 / len(changes)] * len(changes))
    control = without_prefix(GLOBAL, server.state)
    return prefixed(GLOBAL, add(control, average, len(updates) / server.clients))
