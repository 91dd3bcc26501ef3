"""Ways to use a proximal loss in a local step. Each takes any loss of `proximal` and returns (gradient, local loss)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from fedsol.proximal import Proximal
from fedsol.task import Where
from fedsol.weights import Weights, equal, norm

if TYPE_CHECKING:
    from fedsol.data.batches import Batch
    from fedsol.task import Task

Strength = Literal["fixed", "adaptive", "adaptive-column"]

SMALLEST_NORM = 1e-12


def plain(task: Task, weights: Weights, batch: Batch) -> tuple[Weights, Tensor]:
    """`g_l`, the gradient of the local loss."""
    return task.at(weights, batch).gradient()


def perturbed(
    task: Task,
    weights: Weights,
    batch: Batch,
    proximal: Proximal,
    rho: float,
    strength: Strength,
    where: Where,
) -> tuple[Weights, Tensor]:
    """`g_u`, the gradient of the local loss at proximally perturbed weights (FedSOL, equations 5 to 8).

    When only the head is perturbed, the two points share one pass through the body, which changes nothing.
    """
    here = task.at(weights, batch)
    if proximal.zero_at_anchor and equal(weights, task.anchor):
        return here.gradient()
    direction = proximal.gradient(here, where)
    return here.moved(perturbation(direction, weights, task.anchor, rho, strength)).gradient()


def perturbation(direction: Weights, weights: Weights, anchor: Weights, rho: float, strength: Strength) -> Weights:
    """`eps = rho * Lambda (.) g_p / ||g_p||` for the tensors of `direction` (equation 8).

    Lambda (equation 7) is 1 for `fixed`; `|w - a| / ||w - a||` over each tensor for `adaptive`, and over the first
    dimension of each tensor for `adaptive-column`. Where the weights have not moved, an adaptive Lambda is 0.
    """
    factor = rho / norm(direction).clamp_min(SMALLEST_NORM)
    if strength == "fixed":
        return {name: factor * tensor for name, tensor in direction.items()}
    return {
        name: factor * adaptive_lambda(weights[name] - anchor[name], strength) * tensor
        for name, tensor in direction.items()
    }


def adaptive_lambda(moved: Tensor, strength: Strength) -> Tensor:
    """Lambda of one tensor that has `moved` from its anchor (equation 7)."""
    by_column = strength == "adaptive-column" and moved.dim() > 0
    size: Tensor = torch.linalg.vector_norm(moved, dim=0 if by_column else None)
    return moved.abs() / size.clamp_min(torch.finfo(size.dtype).tiny)
