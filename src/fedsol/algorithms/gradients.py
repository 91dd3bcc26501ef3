"""Ways to turn a batch into a gradient. Those with a proximal loss take any; each returns (gradient, local loss)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedsol.algorithms.proximal import OutputLoss, Proximal
from fedsol.algorithms.task import Outputs, Point, Task, Where
from fedsol.core.weights import Weights, add, dot, norm
from fedsol.data.batches import Batch

Strength = Literal["fixed", "adaptive", "adaptive-column"]
DEFAULT_STRENGTH: Strength = "adaptive-column"
"""Of every method that perturbs: the released code's reading of equation 7, ahead on CIFAR-10 (docs/results.md)."""

SMALLEST_NORM = 1e-12


@dataclass(frozen=True)
class Perturbation:
    """How weights are perturbed along a proximal gradient: how far, with which Lambda, and in which part."""

    rho: float
    strength: Strength = DEFAULT_STRENGTH
    where: Where = "all"
    along_a_change: bool = False
    """Whether the direction is a change of the global model, and 0 where that does not change."""

    @property
    def is_zero_if_head_is_frozen(self) -> bool:
        """Whether nothing is perturbed while the head, which alone is perturbed, does not move."""
        return self.where == "head" and (self.strength != "fixed" or self.along_a_change)

    def step(self, direction: Weights, weights: Weights, anchor: Weights) -> Weights:
        """Return `eps = rho * Lambda (.) g_p / ||g_p||` for the tensors of `direction` (equation 8).

        Lambda (equation 7) is 1 for `fixed`; `|w - a| / ||w - a||` over each tensor for `adaptive`, and over the first
        dimension of each tensor for `adaptive-column`. Where the weights have not moved, an adaptive Lambda is 0.
        """
        factor = self.rho / norm(direction).clamp_min(SMALLEST_NORM)
        if self.strength == "fixed":
            return {name: factor * tensor for name, tensor in direction.items()}
        return {
            name: factor * adaptive_lambda(weights[name] - anchor[name], self.strength) * tensor
            for name, tensor in direction.items()
        }


def plain(task: Task, weights: Weights, batch: Batch) -> tuple[Weights, Tensor]:
    """Return `g_l`, the gradient of the local loss."""
    return task.at(weights, batch).gradient()


def auxiliary(task: Task, weights: Weights, batch: Batch, proximal: Proximal, beta: float) -> tuple[Weights, Tensor]:
    """Return `g_l + beta g_p` (FedSOL, equation 2); a loss of the outputs shares the local loss's backward pass."""
    return sum_at(task.at(weights, batch), proximal, beta)


def projected(task: Task, weights: Weights, batch: Batch, proximal: Proximal) -> tuple[Weights, Tensor]:
    """Return `g_l` without its component along `g_p`, where the two conflict (FedSOL, equation 3)."""
    here = task.at(weights, batch)
    if proximal.vanishes_at(here):
        return here.gradient()
    local, loss = here.gradient(keep=True)
    direction = proximal.gradient(here, "all")
    conflict = dot(local, direction).clamp_max(0) / dot(direction, direction).clamp_min(SMALLEST_NORM**2)
    return {name: tensor - conflict * direction[name] for name, tensor in local.items()}, loss


def perturbed(
    task: Task, weights: Weights, batch: Batch, proximal: Proximal, how: Perturbation
) -> tuple[Weights, Tensor]:
    """Return `g_u`, the gradient of the local loss at proximally perturbed weights (FedSOL, equations 5 to 8).

    When only the head is perturbed, the two points share one pass through the body, which changes nothing.
    """
    here = task.at(weights, batch)
    if proximal.vanishes_at(here):
        return here.gradient()
    direction = proximal.gradient(here, how.where)
    return here.moved(how.step(direction, weights, task.anchor)).gradient()


def perturbation(direction: Weights, weights: Weights, anchor: Weights, rho: float, strength: Strength) -> Weights:
    """Return the step of a `Perturbation`, from numbers."""
    return Perturbation(rho, strength).step(direction, weights, anchor)


def adaptive_lambda(moved: Tensor, strength: Strength) -> Tensor:
    """Return Lambda of one tensor that has `moved` from its anchor (equation 7)."""
    size: Tensor = torch.linalg.vector_norm(moved, dim=0 if strength == "adaptive-column" else None)
    return moved.abs() / size.clamp_min(torch.finfo(size.dtype).tiny)


def sharpness_aware(task: Task, weights: Weights, batch: Batch, rho: float) -> tuple[Weights, Tensor]:
    """Return the local gradient at `w + eps` with SAM's `eps = rho g / ||g||`."""
    here = task.at(weights, batch)
    local, _ = here.gradient()
    return here.moved(Perturbation(rho, "fixed").step(local, weights, task.anchor)).gradient()


def adaptive_sharpness_aware(task: Task, weights: Weights, batch: Batch, rho: float) -> tuple[Weights, Tensor]:
    """Return the local gradient at `w + eps` with ASAM's `eps`."""
    here = task.at(weights, batch)
    local, _ = here.gradient()
    return here.moved(scaled_step(local, weights, rho)).gradient()


def scaled_step(local: Weights, weights: Weights, rho: float) -> Weights:
    """Return ASAM's `eps = rho w^2 g / || |w| g ||` for the tensors of `local`."""
    scaled = {name: weights[name].abs() * tensor for name, tensor in local.items()}
    factor = rho / norm(scaled).clamp_min(SMALLEST_NORM)
    return {name: factor * weights[name].abs() * tensor for name, tensor in scaled.items()}


def sum_at(point: Point, proximal: Proximal, beta: float) -> tuple[Weights, Tensor]:
    """Return the gradient of `L + beta P` at a point, and L there."""
    if not isinstance(proximal, OutputLoss):
        local, loss = point.gradient()
        return add(local, proximal.gradient(point, "all"), beta), loss
    seen: list[Tensor] = []

    def both(outputs: Outputs, at: Point) -> Tensor:
        seen.append(at.task.local_loss(outputs, at))
        return seen[0] + beta * proximal.loss(outputs, at)

    gradient, _ = point.gradient(both)
    return gradient, seen[0].detach()
