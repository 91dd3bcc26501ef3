"""The largest eigenvalues of a loss's Hessian, without ever forming it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor

from fedsol.core.weights import Weights
from fedsol.data.batches import Batch
from fedsol.errors import InputError, RunError
from fedsol.models.split import SplitModel

Vector = NDArray[np.float64]
TOLERANCE = 1e-4
"""Relative accuracy of the eigenvalues."""


@dataclass(frozen=True)
class Problem:
    """The mean cross-entropy of a model on fixed data, in evaluation mode, as a function of its trained weights."""

    model: SplitModel
    weights: Weights
    """Parameters and buffers."""
    batches: tuple[Batch, ...]

    @property
    def examples(self) -> int:
        """Number of examples in all batches."""
        return sum(len(batch) for batch in self.batches)

    @property
    def dimension(self) -> int:
        """Number of trained weights."""
        return sum(self.weights[name].numel() for name in self.model.names)

    def moved(self, direction: Vector) -> Weights:
        """The weights plus a flat vector."""
        return {**self.weights, **self._unflattened(direction, self.weights)}

    def _unflattened(self, vector: Vector, like: Weights) -> Weights:
        parts, start = {}, 0
        for name in self.model.names:
            tensor = like[name]
            stop = start + tensor.numel()
            piece = torch.from_numpy(np.ascontiguousarray(vector[start:stop]))
            parts[name] = tensor + piece.to(tensor).view_as(tensor)
            start = stop
        return parts

    @torch.no_grad()
    def loss(self, weights: Weights) -> float:
        """The loss at some weights."""
        self.model.train(False)
        return sum(float(self._summed(weights, batch)) for batch in self.batches) / self.examples

    def times_hessian(self, vector: Vector) -> Vector:
        """`H v`: the gradient of `<g, v>`, by a second backward pass through the first."""
        self.model.train(False)
        total = np.zeros(self.dimension)
        for batch in self.batches:
            leaves = {name: self.weights[name].detach().requires_grad_() for name in self.model.names}
            tensors = list(leaves.values())
            value = self._summed({**self.weights, **leaves}, batch)
            first = torch.autograd.grad(value, tensors, create_graph=True, materialize_grads=True)
            zero = {name: torch.zeros_like(tensor) for name, tensor in leaves.items()}
            along = list(self._unflattened(vector, zero).values())
            second = torch.autograd.grad(first, tensors, along, materialize_grads=True)
            total += np.concatenate([part.detach().double().cpu().numpy().ravel() for part in second])
        return total / self.examples

    def _summed(self, weights: Weights, batch: Batch) -> Tensor:
        # Attention kernels made for speed have no second derivative; the plain formula has.
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            logits = self.model.outputs(weights, batch.inputs)[1]
        return F.cross_entropy(logits, batch.labels, reduction="sum")


def top_eigenpairs(problem: Problem, count: int, start: Vector) -> tuple[Vector, NDArray[np.float64]]:
    """The `count` algebraically largest eigenvalues, descending, and their unit vectors as columns.

    By the implicitly restarted Lanczos method on products with the Hessian; `start` is its first vector. A vector's
    sign, which the method leaves open, is chosen so that its largest component is positive.
    """
    dimension = problem.dimension
    if not 1 <= count < dimension:
        raise InputError(f"eigenvalues: must be 1 to {dimension - 1} for this model (got {count})")
    values, vectors = _lanczos(problem.times_hessian, dimension, count, start)
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(count)])
    return values, vectors * signs


def _lanczos(product: Callable[[Vector], Vector], dimension: int, count: int, start: Vector) -> tuple[Vector, Vector]:
    operator = LinearOperator((dimension, dimension), matvec=lambda v: product(v.ravel()), dtype=np.float64)
    try:
        values, vectors = eigsh(operator, k=count, which="LA", v0=start, tol=TOLERANCE)
    except ArpackError as error:
        raise RunError(f"landscape: the eigenvalues of the Hessian could not be found: {error}") from error
    return values, vectors
