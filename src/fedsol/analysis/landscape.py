"""Loss landscape: the loss of a global model over the two directions in which it is most curved."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedsol.analysis.hessian import Problem, top_eigenpairs
from fedsol.core.randomness import generator_for, numpy_generator_for, one_torch_thread
from fedsol.core.weights import Weights, on_device
from fedsol.data.batches import evaluation_batches
from fedsol.errors import InputError
from fedsol.federation.federation import Federation

CHUNK = 256
"""Examples of one pass: what bounds the memory."""


@dataclass(frozen=True)
class Landscape:
    """FedSOL, section 5, "Smoothness of Loss Landscape": the top two eigenvectors of the Hessian span the plane."""

    round: int
    examples: int
    eigenvalues: tuple[float, ...]
    """Of the Hessian of the loss on training examples, the largest first."""
    places: tuple[float, ...]
    """Steps along either eigenvector (unit vectors over all trained weights)."""
    losses: tuple[tuple[float, ...], ...]
    """`losses[i][j]` is the loss at `w + places[j] v_1 + places[i] v_2`."""
    loss: float
    """At the model itself."""

    @property
    def ratio(self) -> float | None:
        """lambda_1 / lambda_5; None with fewer eigenvalues, or if lambda_5 is 0."""
        return self.eigenvalues[0] / self.eigenvalues[4] if any(self.eigenvalues[4:5]) else None


def landscape(
    federation: Federation,
    weights: Weights,
    round_number: int,
    examples: int = 512,
    points: int = 21,
    radius: float = 1.0,
    eigenvalues: int = 5,
) -> Landscape:
    """Eigenvalues and the surface, on training examples of all clients, drawn once and not augmented."""
    check_options(examples, points, radius, eigenvalues)
    with one_torch_thread():
        problem = problem_for(federation, weights, examples)
        start = numpy_generator_for(federation.experiment.seed, "landscape").standard_normal(problem.dimension)
        values, vectors = top_eigenpairs(problem, eigenvalues, start)
        places = np.linspace(-radius, radius, points)
        losses = _surface(problem, vectors[:, 0], vectors[:, 1], places.tolist())
        centre = problem.loss(problem.weights)
    found = tuple(float(value) for value in values)
    return Landscape(round_number, problem.examples, found, tuple(places.tolist()), losses, centre)


def check_options(examples: int, points: int, radius: float, eigenvalues: int = 5) -> None:
    """Refuses options that give no surface."""
    for name, value, least in (("examples", examples, 1), ("points", points, 3), ("eigenvalues", eigenvalues, 2)):
        if value < least:
            raise InputError(f"landscape: {name} {value} is not allowed; it must be {least} or more")
    if not 0 < radius < math.inf:
        raise InputError(f"landscape: radius {radius} is not allowed; it must be above 0")


def problem_for(federation: Federation, weights: Weights, examples: int) -> Problem:
    """The loss on up to so many training examples, the same for every run with the same seed and data."""
    dataset = federation.dataset
    order = torch.randperm(
        len(dataset.train), generator=generator_for(federation.experiment.seed, "landscape examples")
    )
    batches = evaluation_batches(dataset.train, dataset, CHUNK, federation.device, order[:examples])
    return Problem(federation.model, on_device(weights, federation.device), tuple(batches))


def _surface(
    problem: Problem, first: np.ndarray, second: np.ndarray, places: Sequence[float]
) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(problem.loss(problem.moved(right * first + up * second)) for right in places) for up in places)
