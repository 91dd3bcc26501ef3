"""Directions along which a method perturbs weights, and the states behind them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedsol.algorithms import controls
from fedsol.algorithms.controls import MOMENTUM
from fedsol.algorithms.gradients import SMALLEST_NORM, Perturbation, scaled_step
from fedsol.algorithms.proximal import Proximal
from fedsol.algorithms.task import Point, Task, Where
from fedsol.core.messages import ServerState, State, Update
from fedsol.core.weights import (
    Weights,
    add,
    clone,
    mean,
    norm,
    pick,
    prefixed,
    scale,
    subtract,
    without_prefix,
)

PREVIOUS, CHANGE = "previous-anchor", "last-change"
DUAL, AGREED = "dual", "agreed-perturbation"


class Direction(ABC):
    """A direction at a point. By default it needs no state of a client or of the server."""

    needs_sgd: ClassVar[bool] = False
    """Whether its formulas hold only for SGD with momentum."""

    @abstractmethod
    def at(self, here: Point, where: Where, state: State) -> Weights | None:
        """Return the direction on a part of the weights; None if there is none yet."""

    def perturbation(self, here: Point, how: Perturbation, state: State) -> Weights | None:
        """Return `eps`; None if nothing is perturbed."""
        direction = self.at(here, how.where, state)
        return None if direction is None else how.step(direction, here.weights, here.task.anchor)

    def init_server(self, parameters: Weights) -> State:
        """Return the server's part before the first round."""
        return {}

    def init_client(self, parameters: Weights) -> State:
        """Return a client's part before its first job."""
        return {}

    def broadcast(self, server: ServerState) -> State:
        """Return what every client of a round receives for it."""
        return {}

    def begin(self, task: Task, broadcast: State, state: State) -> State:
        """Return what is seen during a job."""
        return {}

    def after(self, perturbation: Weights | None, state: State) -> State:
        """Return what is seen after a step."""
        return state

    def finish(self, task: Task, steps: int, state: State) -> tuple[State, State]:
        """Return the client's new part, and its part of the payload."""
        return {}, {}

    def aggregate(self, server: ServerState, updates: Sequence[Update]) -> State:
        """Return the server's part after a round."""
        return {}


class LocalGradient(Direction):
    """The gradient of the local loss: SAM's direction."""

    def at(self, here: Point, where: Where, state: State) -> Weights:
        return here.gradient(where=where)[0]


class ScaledLocalGradient(Direction):
    """The gradient of the local loss, scaled by the weights: ASAM's perturbation."""

    def at(self, here: Point, where: Where, state: State) -> Weights:
        return here.gradient(where=where)[0]

    def perturbation(self, here: Point, how: Perturbation, state: State) -> Weights:
        return scaled_step(self.at(here, how.where, state), here.weights, how.rho)


@dataclass(frozen=True)
class ProximalGradient(Direction):
    """The gradient of a proximal loss: FedSOL's direction. At the anchor, where that is 0, there is none."""

    proximal: Proximal

    def at(self, here: Point, where: Where, state: State) -> Weights | None:
        return None if self.proximal.vanishes_at(here) else self.proximal.gradient(here, where)


class ServerMomentum(Direction):
    """The mean gradient that the clients of the last round applied (FedCM's). Before the second round there is none."""

    needs_sgd = True

    def at(self, here: Point, where: Where, state: State) -> Weights:
        return pick(without_prefix(MOMENTUM, state), here.task.names(where))

    def init_server(self, parameters: Weights) -> State:
        return controls.initial(MOMENTUM, parameters)

    def broadcast(self, server: ServerState) -> State:
        return prefixed(MOMENTUM, without_prefix(MOMENTUM, server.state))

    def begin(self, task: Task, broadcast: State, state: State) -> State:
        return prefixed(MOMENTUM, without_prefix(MOMENTUM, broadcast))

    def finish(self, task: Task, steps: int, state: State) -> tuple[State, State]:
        return {}, controls.factor_of(task, controls.momentum_steps(steps, task.momentum))

    def aggregate(self, server: ServerState, updates: Sequence[Update]) -> State:
        return controls.mean_applied(server, updates)


class LastChange(Direction):
    """`w_old - a`: from the global model that the client received now to the one that it received the last time.

    In a client's first job there is none.
    """

    def at(self, here: Point, where: Where, state: State) -> Weights | None:
        change = without_prefix(CHANGE, state)
        return pick(change, here.task.names(where)) if change else None

    def begin(self, task: Task, broadcast: State, state: State) -> State:
        previous = without_prefix(PREVIOUS, state)
        return prefixed(CHANGE, subtract(previous, task.anchor))

    def finish(self, task: Task, steps: int, state: State) -> tuple[State, State]:
        return prefixed(PREVIOUS, task.anchor), {}


@dataclass(frozen=True)
class Consensus(Direction):
    """`g_l - mu_i - s`: the local gradient without the dual variables that make the clients' perturbations agree.

    After a step `mu_i <- mu_i + eps - s`; the server sends `s = rho mean_S(mu_i) / ||mean_S(mu_i)||` (FedSMOO).
    """

    rho: float

    def at(self, here: Point, where: Where, state: State) -> Weights:
        local = here.gradient(where=where)[0]
        return subtract(subtract(local, without_prefix(DUAL, state)), without_prefix(AGREED, state))

    def init_server(self, parameters: Weights) -> State:
        return controls.initial(AGREED, parameters)

    def init_client(self, parameters: Weights) -> State:
        return controls.initial(DUAL, parameters)

    def broadcast(self, server: ServerState) -> State:
        return prefixed(AGREED, without_prefix(AGREED, server.state))

    def begin(self, task: Task, broadcast: State, state: State) -> State:
        return {**prefixed(AGREED, without_prefix(AGREED, broadcast)), **prefixed(DUAL, without_prefix(DUAL, state))}

    def after(self, perturbation: Weights | None, state: State) -> State:
        assert perturbation is not None
        dual = pick(without_prefix(DUAL, state), perturbation)
        moved = subtract(perturbation, without_prefix(AGREED, state))
        return {**state, **prefixed(DUAL, add(dual, moved))}

    def finish(self, task: Task, steps: int, state: State) -> tuple[State, State]:
        dual = prefixed(DUAL, without_prefix(DUAL, state))
        return dual, clone(dual)

    def aggregate(self, server: ServerState, updates: Sequence[Update]) -> State:
        average = mean([without_prefix(DUAL, one.payload) for one in updates], [1 / len(updates)] * len(updates))
        length = norm(average).clamp_min(SMALLEST_NORM)
        return prefixed(AGREED, scale(average, self.rho / float(length)))
