"""Loss landscape: the loss of a global model over the two directions in which it is most curved."""

import math
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor

from fedsol.analysis.base import Analysis, Runs
from fedsol.core.randomness import generator_for, numpy_generator_for, one_torch_thread
from fedsol.core.weights import Weights, add, on_device, pick
from fedsol.data.batches import Batch, evaluation_batches
from fedsol.errors import InputError, RunError
from fedsol.federation.federation import Federation
from fedsol.models.split import SplitModel
from fedsol.objectives.base import CLASSES, Objective
from fedsol.plots.panels import SEQUENTIAL
from fedsol.plots.style import INK, Figure, new_figure

Vector = NDArray[np.float64]
TOLERANCE = 1e-4
"""Relative accuracy of the eigenvalues."""
CHUNK = 256
"""Examples per pass, which bounds the memory."""
LEVELS = 14
COLUMNS = 3
LETTERS = 10.5
"""Letters of a title per inch."""


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


@dataclass(frozen=True)
class Problem:
    """The mean loss of a model on fixed data, in evaluation mode, as a function of its trained weights."""

    model: SplitModel
    weights: Weights
    """Parameters and buffers."""
    batches: tuple[Batch, ...]
    objective: Objective = CLASSES

    @property
    def examples(self) -> int:
        """Number of examples in all batches."""
        return sum(len(batch) for batch in self.batches)

    @property
    def dimension(self) -> int:
        """Number of trained weights."""
        return sum(self.weights[name].numel() for name in self.model.names)

    def moved(self, direction: Vector) -> Weights:
        """Return the weights plus a flat vector."""
        return {**self.weights, **add(pick(self.weights, self.model.names), self._unflattened(direction))}

    def _unflattened(self, vector: Vector) -> Weights:
        like = pick(self.weights, self.model.names)
        flat = torch.from_numpy(np.ascontiguousarray(vector))
        pieces = torch.split(flat, [tensor.numel() for tensor in like.values()])
        pairs = zip(like.items(), pieces, strict=True)
        return {name: piece.to(tensor).view_as(tensor) for (name, tensor), piece in pairs}

    @torch.no_grad()
    def loss(self, weights: Weights) -> float:
        """Return the loss at some weights."""
        self.model.train(False)
        return sum(float(self._summed(weights, batch)) for batch in self.batches) / self.examples

    def times_hessian(self, vector: Vector) -> Vector:
        """Return `H v`: the gradient of `<g, v>`, by a second backward pass through the first."""
        self.model.train(False)
        along = list(self._unflattened(vector).values())
        total = np.zeros(self.dimension)
        for batch in self.batches:
            leaves = {name: self.weights[name].detach().requires_grad_() for name in self.model.names}
            tensors = list(leaves.values())
            value = self._summed({**self.weights, **leaves}, batch)
            first = torch.autograd.grad(value, tensors, create_graph=True, materialize_grads=True)
            second = torch.autograd.grad(first, tensors, along, materialize_grads=True)
            total += np.concatenate([part.detach().double().cpu().numpy().ravel() for part in second])
        return total / self.examples

    def _summed(self, weights: Weights, batch: Batch) -> Tensor:
        # Attention kernels made for speed have no second derivative; the plain formula has.
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            logits = self.model.outputs(weights, batch.inputs)[1]
        return self.objective.total_loss(logits, batch.labels)


def top_eigenpairs(problem: Problem, count: int, start: Vector) -> tuple[Vector, NDArray[np.float64]]:
    """Return the `count` algebraically largest eigenvalues, descending, and their unit vectors as columns.

    By the implicitly restarted Lanczos method on products with the Hessian; `start` is its first vector. A vector's
    sign, which the method leaves open, is chosen so that its largest component is positive.
    """
    dimension = problem.dimension
    if not 1 <= count < dimension:
        raise InputError(f"eigenvalues: must be 1 to {dimension - 1} for this model (got {count})")
    operator = LinearOperator((dimension,) * 2, matvec=lambda v: problem.times_hessian(v.ravel()), dtype=np.float64)
    try:
        values, vectors = eigsh(operator, k=count, which="LA", v0=start, tol=TOLERANCE)
    except ArpackError as error:
        raise RunError(f"landscape: the eigenvalues of the Hessian could not be found: {error}") from error
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(count)])
    return values, vectors * signs


def problem_for(federation: Federation, weights: Weights, examples: int) -> Problem:
    """Return the loss on at most `examples` training examples, the same for every run with the same seed and data."""
    dataset = federation.dataset
    order = torch.randperm(
        len(dataset.train), generator=generator_for(federation.experiment.seed, "landscape examples")
    )
    batches = evaluation_batches(dataset.train, dataset, CHUNK, federation.device, order[:examples])
    return Problem(federation.model, on_device(weights, federation.device), tuple(batches), federation.objective)


@dataclass(frozen=True)
class LandscapeAnalysis(Analysis[dict[str, Landscape]]):
    """The loss surface of every run's newest global model, by label; all on one scale of colors."""

    stem = "landscape"
    examples: int = 512
    points: int = 21
    """Along each axis."""
    radius: float = 1.0
    """Distance from the model to the end of each axis."""
    eigenvalues: int = 5

    def __post_init__(self) -> None:
        for name, least in (("examples", 1), ("points", 3), ("eigenvalues", 2)):
            if (value := getattr(self, name)) < least:
                raise InputError(f"--{name}: must be {least} or more (got {value})")
        if not 0 < self.radius < math.inf:
            raise InputError(f"--radius: must be greater than 0 and finite (got {self.radius})")

    def landscape(self, federation: Federation, weights: Weights, round_number: int) -> Landscape:
        """Return eigenvalues and surface, on training examples of all clients, drawn once and not augmented."""
        with one_torch_thread():
            problem = problem_for(federation, weights, self.examples)
            start = numpy_generator_for(federation.experiment.seed, "landscape").standard_normal(problem.dimension)
            values, vectors = top_eigenpairs(problem, self.eigenvalues, start)
            places = tuple(np.linspace(-self.radius, self.radius, self.points).tolist())
            first, second = vectors[:, 0], vectors[:, 1]
            losses = tuple(
                tuple(problem.loss(problem.moved(right * first + up * second)) for right in places) for up in places
            )
            center = problem.loss(problem.weights)
        return Landscape(round_number, problem.examples, tuple(map(float, values)), places, losses, center)

    def measure(self, runs: Runs) -> dict[str, Landscape]:
        found = {}
        for item in runs.series:
            for replay in item.runs:
                seed = f" seed {replay.run.seed}" if len(item.runs) > 1 else ""
                weights, number = replay.checkpoint.server.weights, replay.checkpoint.round
                found[item.label + seed] = self.landscape(replay.federation, weights, number)
        return found

    def draw(self, found: dict[str, Landscape], subject: str) -> Figure:
        surfaces = [np.array(one.losses) for one in found.values()]
        finite = np.concatenate([surface[np.isfinite(surface)] for surface in surfaces])
        low, high = max(finite.min(), finite.max() * 1e-4, 1e-8), finite.max()
        # Evenly spread on a log scale: a bowl's bottom and its rim both show.
        look: dict[str, Any] = {"levels": np.geomspace(low, max(high, low * 1.01), LEVELS)}
        columns = min(len(found), COLUMNS)
        rows = math.ceil(len(found) / columns)
        width = max(3.4 * columns + 0.9, 5.2)
        heading = textwrap.fill(f"loss landscape of the global model, {subject}", int(LETTERS * width))
        figure = new_figure(width, 3.9 * rows + 0.2 + 0.2 * heading.count("\n"), heading)
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, (label, one), surface in zip(panels, found.items(), surfaces, strict=False):
            filled = axes.contourf(one.places, one.places, surface, cmap=SEQUENTIAL, extend="both", **look)
            lines = axes.contour(one.places, one.places, surface, colors=INK, linewidths=0.4, **look)
            axes.clabel(lines, fontsize=6.5, fmt="%.3g")
            axes.plot([0], [0], marker="P", color="white", markeredgecolor=INK, markersize=8)
            axes.set(title=f"{label}\n{_numbers(one)}", xlabel="along v₁", ylabel="along v₂")
            axes.title.set_fontsize(8.5)
            axes.set_aspect("equal")
        for axes in panels[len(found) :]:
            axes.set_visible(False)
        bar = figure.colorbar(filled, ax=list(panels), shrink=0.8, aspect=28, pad=0.02, format="%.3g")
        bar.set_label("loss on training examples (log scale)")
        return figure

    def say(self, found: dict[str, Landscape]) -> list[str]:
        return [
            f"{label}: lambda_1 {one.eigenvalues[0]:.4g}, lambda_5 {one.eigenvalues[4]:.4g}"
            + ("" if one.ratio is None else f", ratio {one.ratio:.3f}")
            for label, one in found.items()
        ]


def _numbers(one: Landscape) -> str:
    fifth = f", λ₅ {one.eigenvalues[4]:.3g}" if len(one.eigenvalues) > 4 else ""
    ratio = "" if one.ratio is None else f", λ₁/λ₅ {one.ratio:.2f}"
    return f"λ₁ {one.eigenvalues[0]:.3g}{fifth}{ratio}"
