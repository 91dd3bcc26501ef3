"""Ways to turn a batch into a gradient. Those with a proximal loss take any; each returns (gradient, local loss)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from fedsol.algorithms.proximal import OutputLoss, Proximal
from fedsol.algorithms.task import Where
from fedsol.core.weights import Weights, add, dot, equal, norm

if TYPE_CHECKING:
    from fedsol.algorithms.task import Outputs, Point, Task
    from fedsol.data.batches import Batch

Strength = Literal["fixed", "adaptive", "adaptive-column"]
DEFAULT_STRENGTH: Strength = "adaptive-column"
"""Of every method that perturbs: the released code's reading of equation 7, ahead on CIFAR-10 (docs/results.md)."""
Strategy = Literal["A0", "A1", "A2", "A3", "A4", "A5", "A6"]

SMALLEST_NORM = 1e-12


def plain(task: Task, weights: Weights, batch: Batch) -> tuple[Weights, Tensor]:
    """`g_l`, the gradient of the local loss."""
    return task.at(weights, batch).gradient()


def auxiliary(task: Task, weights: Weights, batch: Batch, proximal: Proximal, beta: float) -> tuple[Weights, Tensor]:
    """`g_l + beta g_p` (FedSOL, equation 2); a loss of the outputs shares the local loss's backward pass."""
    return _sum_at(task.at(weights, batch), proximal, beta)


def projected(task: Task, weights: Weights, batch: Batch, proximal: Proximal) -> tuple[Weights, Tensor]:
    """`g_l` without its component along `g_p`, where the two are in conflict (FedSOL, equation 3)."""
    here = task.at(weights, batch)
    if proximal.zero_at_anchor and equal(weights, task.anchor):
        return here.gradient()
    local, loss = here.gradient(keep=True)
    direction = proximal.gradient(here, "all")
    conflict = dot(local, direction).clamp_max(0) / dot(direction, direction).clamp_min(SMALLEST_NORM**2)
    return {name: tensor - conflict * direction[name] for name, tensor in local.items()}, loss


def perturbed(
    task: Task, weights: Weights, batch: Batch, proximal: Proximal, rho: float, strength: Strength, where: Where
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


def check_frozen_head(strength: Strength, where: Where) -> None:
    """Raises `ValueError` if a perturbation is 0 as long as the head is not trained: that of the head, if adaptive."""
    if where == "head" and strength != "fixed":
        raise ValueError(
            f"client.trains: 'body' is not allowed with algorithm.perturb = 'head' and strength = {strength!r}: the "
            "classifier never moves, so nothing would be perturbed; set algorithm.perturb to 'body' or 'all', or "
            "algorithm.strength to 'fixed'"
        )


def adaptive_lambda(moved: Tensor, strength: Strength) -> Tensor:
    """Lambda of one tensor that has `moved` from its anchor (equation 7)."""
    by_column = strength == "adaptive-column" and moved.dim() > 0
    size: Tensor = torch.linalg.vector_norm(moved, dim=0 if by_column else None)
    return moved.abs() / size.clamp_min(torch.finfo(size.dtype).tiny)


def sharpness_aware(task: Task, weights: Weights, batch: Batch, rho: float, adaptive: bool) -> tuple[Weights, Tensor]:
    """The local gradient at `w + eps`: SAM's `eps = rho g / ||g||`, or ASAM's `rho w^2 g / || |w| g ||`."""
    here = task.at(weights, batch)
    local, _ = here.gradient()
    if adaptive:
        scaled = {name: weights[name].abs() * tensor for name, tensor in local.items()}
        factor = rho / norm(scaled).clamp_min(SMALLEST_NORM)
        step = {name: factor * weights[name].abs() * tensor for name, tensor in scaled.items()}
    else:
        factor = rho / norm(local).clamp_min(SMALLEST_NORM)
        step = {name: factor * tensor for name, tensor in local.items()}
    return here.moved(step).gradient()


def ablation(
    task: Task,
    weights: Weights,
    batch: Batch,
    proximal: Proximal,
    strategy: Strategy,
    beta: float,
    rho: float,
    strength: Strength,
    where: Where,
) -> tuple[Weights, Tensor]:
    """The objectives A0 to A6 of FedSOL's appendix, by the formulas of its table.

    A0 `L(w)`; A1 `L(w + e_p)`; A2 `L(w) + b P(w + e_p)`; A3 `L(w + e_p) + b P(w + e_p)`; A4 `L(w + e_c) + b P(w + e_c)`
    with `e_c` along `g_l + g_p`; A5 `L(w) + P(w)`; A6 `L(w + e_p) + b P(w)`.
    """
    if strategy == "A0":
        return plain(task, weights, batch)
    if strategy == "A1":
        return perturbed(task, weights, batch, proximal, rho, strength, where)
    if strategy == "A5":
        return auxiliary(task, weights, batch, proximal, 1.0)
    here = task.at(weights, batch)
    if strategy == "A4":
        direction = add(here.gradient(where=where, keep=True)[0], _direction(here, proximal, where))
    else:
        direction = _direction(here, proximal, where)
    there = here.moved(perturbation(direction, weights, task.anchor, rho, strength))
    if strategy in ("A3", "A4"):
        return _sum_at(there, proximal, beta)
    local_at, proximal_at = (here, there) if strategy == "A2" else (there, here)
    local, loss = local_at.gradient(keep=True)
    return add(local, proximal.gradient(proximal_at, "all"), beta), loss


def _direction(here: Point, proximal: Proximal, where: Where) -> Weights:
    """`g_p` at a point whose pass is used again; exactly 0 where the loss's gradient is noise around 0."""
    if proximal.zero_at_anchor and equal(here.weights, here.task.anchor):
        return {name: torch.zeros_like(here.weights[name]) for name in here.task.names(where)}
    return proximal.gradient(here, where, keep=True)


def _sum_at(point: Point, proximal: Proximal, beta: float) -> tuple[Weights, Tensor]:
    """Gradient of `L + beta P` at a point, and L there."""
    if not isinstance(proximal, OutputLoss):
        local, loss = point.gradient()
        return add(local, proximal.gradient(point, "all"), beta), loss
    seen: list[Tensor] = []

    def both(outputs: Outputs, at: Point) -> Tensor:
        seen.append(at.task.local_loss(outputs, at))
        return seen[0] + beta * proximal.loss(outputs, at)

    gradient, _ = point.gradient(both)
    return gradient, seen[0].detach()
