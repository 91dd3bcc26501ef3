"""Arithmetic on weights: named tensors as one vector. No function changes its arguments."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def add(left: Weights, right: Weights, scale: float = 1.0) -> Weights:
    """Return `left + scale * right`; names that `right` lacks keep their value."""
    return {
        name: torch.add(tensor, right[name], alpha=scale) if name in right else tensor for name, tensor in left.items()
    }


def subtract(left: Weights, right: Weights) -> Weights:
    """Return `left - right` on the names of `left`."""
    return {name: tensor - right[name] for name, tensor in left.items()}


def scale(weights: Weights, factor: float) -> Weights:
    """Return `factor * weights`."""
    return {name: tensor * factor for name, tensor in weights.items()}


def zeros(weights: Weights) -> Weights:
    """Return zeros of the same shapes."""
    return {name: torch.zeros_like(tensor) for name, tensor in weights.items()}


def pick(weights: Mapping[str, Tensor], names: Iterable[str]) -> Weights:
    """Return the named part of the weights (the tensors themselves, not copies)."""
    return {name: weights[name] for name in names}


def dot(left: Weights, right: Weights) -> Tensor:
    """Return the inner product over all names of `left`."""
    return torch.stack([torch.sum(tensor * right[name]) for name, tensor in left.items()]).sum()


def norm(weights: Weights) -> Tensor:
    """Return the Euclidean norm over all tensors together; 0 if there are none."""
    if not weights:
        return torch.zeros(())
    parts: Tensor = torch.stack([torch.linalg.vector_norm(tensor) for tensor in weights.values()])
    total: Tensor = torch.linalg.vector_norm(parts)
    return total


def equal(left: Weights, right: Weights) -> bool:
    """Return whether every tensor of `left` equals that of `right`; stop at the first difference."""
    return all(torch.equal(tensor, right[name]) for name, tensor in left.items())


def clone(weights: Weights) -> Weights:
    """Return a copy that shares no memory."""
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


class RunningMean:
    """The sum of `share * weights` so far, in the tensors' own precision; counters are copied from the first."""

    def __init__(self) -> None:
        self.total: Weights = {}

    def add(self, weights: Weights, share: float) -> None:
        """Add one more, whose tensors are not needed afterward."""
        if not self.total:
            self.total = {
                name: tensor * share if tensor.is_floating_point() else tensor.clone()
                for name, tensor in weights.items()
            }
            return
        for name, total in self.total.items():
            if total.is_floating_point():
                total.add_(weights[name], alpha=share)


def mean(all_weights: Sequence[Weights], shares: Sequence[float]) -> Weights:
    """Return `sum_i shares_i * weights_i`; counters (integer tensors) are copied from the first.

    The sum is taken in the order given, so that it is the same on every engine.
    """
    if len(all_weights) != len(shares) or not all_weights:
        raise ValueError(f"shares: must be one for each of {len(all_weights)} weights (got {len(shares)})")
    average = RunningMean()
    for weights, share in zip(all_weights, shares, strict=True):
        average.add(weights, share)
    return average.total


def clip_change(weights: Weights, anchor: Weights, longest: float) -> Weights:
    """Return the weights with their change from `anchor` (on its names) clipped to a norm of at most `longest`.

    If it is no longer than that, these are the same weights, not a copy.
    """
    change = subtract(pick(weights, anchor), anchor)
    length = float(norm(change))
    return weights if length <= longest else {**weights, **add(anchor, change, longest / length)}


def size_in_bytes(weights: Mapping[str, Tensor]) -> int:
    """Return the bytes of the tensors' values, as they cross a network uncompressed."""
    return sum(tensor.numel() * tensor.element_size() for tensor in weights.values())


def prefixed(prefix: str, weights: Weights) -> Weights:
    """Return `{"prefix/name": tensor}`: weights as a part of a state."""
    return {f"{prefix}/{name}": tensor for name, tensor in weights.items()}


def without_prefix(prefix: str, state: Mapping[str, Tensor]) -> Weights:
    """Return the part of a state that was stored by `prefixed`."""
    start = f"{prefix}/"
    return {name[len(start) :]: tensor for name, tensor in state.items() if name.startswith(start)}


def on_device(weights: Weights, device: torch.device) -> Weights:
    """Return the tensors on a device; those already there are not copied."""
    return {name: tensor.to(device) for name, tensor in weights.items()}
