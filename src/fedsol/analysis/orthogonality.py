"""Orthogonality: how the update of every local step lies to the proximal gradient (FedSOL's figure 3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.fedsol import ProximalName, proximal_by_name
from fedsol.algorithms.proximal import OutputLoss, Proximal
from fedsol.algorithms.task import Point, Where
from fedsol.analysis.recording import Recorder, Step
from fedsol.core.messages import Update
from fedsol.core.weights import dot, equal, norm, pick
from fedsol.errors import InputError

FEDSOLS_TAU = 3.0


@dataclass(frozen=True)
class Measure:
    """What is measured: the proximal loss, and over which part of the weights angles are taken."""

    proximal: ProximalName = "kl"
    tau: float = FEDSOLS_TAU
    where: Where = "all"


@dataclass(frozen=True)
class LocalSteps:
    """The local training of one client, step by step."""

    client: int
    cosine: tuple[float | None, ...]
    """cos(g_u, g_p); None where g_p is 0, as at the anchor."""
    proximal_loss: tuple[float, ...]
    """On the batch of the step, before it."""
    local_loss: tuple[float, ...]

    @property
    def mean_cosine(self) -> float | None:
        """Over the steps that have one."""
        found = [value for value in self.cosine if value is not None]
        return sum(found) / len(found) if found else None


@dataclass(frozen=True)
class Orthogonality:
    """A round of local training under one rule."""

    label: str
    rho: float | None
    """The perturbation's strength, where the algorithm has one."""
    round: int
    measure: Measure
    clients: tuple[LocalSteps, ...]


def own_measure(algorithm: Algorithm, where: Where = "all") -> Measure:
    """The algorithm's own proximal loss where it has one by name, FedSOL's (KL, tau 3) for every other method."""
    own = getattr(algorithm, "proximal", None)
    return Measure(where=where) if own is None else Measure(own, getattr(algorithm, "tau", FEDSOLS_TAU), where)


def with_rho(algorithm: Algorithm, rho: float) -> Algorithm:
    """The same algorithm with another strength of its perturbation."""
    names = [field.name for field in dataclasses.fields(algorithm)]
    if "rho" not in names or getattr(algorithm, "usage", "perturbed") != "perturbed":
        raise InputError(
            f"--rho: is not allowed for a run of {type(algorithm).__name__}, which perturbs nothing; allowed: runs of "
            "fedsol, fedsam, fedasam, or of a proximal method with usage = 'perturbed'"
        )
    if rho < 0:
        raise InputError(f"--rho: {rho} is not allowed; it must be 0 or more")
    return dataclasses.replace(algorithm, **{"rho": rho})


def record(
    algorithm: Algorithm, measure: Measure, train: Callable[[Algorithm], Update], frozen: Collection[str] = ()
) -> tuple[LocalSteps, Update]:
    """Trains one client with every step measured. `train` runs its job under the algorithm that it is given.

    Weights that are `frozen` have no part in angles: the optimiser does not get their gradients.
    """
    cosines: list[float | None] = []
    proximal_losses: list[float] = []
    local_losses: list[float] = []
    proximal = proximal_by_name(measure.proximal, measure.tau)

    def observe(step: Step) -> None:
        cosine, value = measured(step, proximal, measure.where, frozen)
        cosines.append(cosine)
        proximal_losses.append(value)
        local_losses.append(float(step.loss))

    update = train(Recorder(algorithm, observe))
    steps = LocalSteps(update.client, tuple(cosines), tuple(proximal_losses), tuple(local_losses))
    return steps, update


def measured(step: Step, proximal: Proximal, where: Where, frozen: Collection[str] = ()) -> tuple[float | None, float]:
    """cos(g_u, g_p) at a step over the trained weights (None where g_p is 0), and the proximal loss there."""
    point = step.task.at(step.weights, step.batch)
    if proximal.zero_at_anchor and equal(step.weights, step.task.anchor):
        return None, 0.0
    value = float(proximal_value(proximal, point))
    direction = proximal.gradient(point, where, keep=True)
    direction = {name: tensor for name, tensor in direction.items() if name not in frozen}
    if not direction:
        return None, value
    update = pick(step.update, direction)
    lengths = float(norm(update) * norm(direction))
    return (float(dot(update, direction)) / lengths if lengths > 0 else None), value


def proximal_value(proximal: Proximal, point: Point) -> Tensor:
    """The proximal loss at a point: of the outputs, or `1/2 ||w - a||^2`."""
    if isinstance(proximal, OutputLoss):
        return proximal.loss(point.outputs, point).detach()
    return 0.5 * norm(proximal.gradient(point, "all")) ** 2


def mean_over_progress(
    values: Sequence[Sequence[float | None]], points: int
) -> tuple[list[float], list[list[float | None]]]:
    """Series of different lengths on one axis: the share of local training done, in `points` places.

    A place takes the value of the nearest step at or before it; places without one (None) stay empty.
    """
    shares = [(place + 0.5) / points for place in range(points)]
    rows = [[row[min(int(share * len(row)), len(row) - 1)] if row else None for share in shares] for row in values]
    return shares, rows
