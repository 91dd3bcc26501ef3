"""Compare tensors bit for bit."""

import torch

from fedsol.core.messages import State


def same_tensors(left: State, right: State) -> bool:
    """Return whether two states have the same names, types and values, bit for bit."""
    return left.keys() == right.keys() and all(
        tensor.dtype == right[name].dtype and torch.equal(tensor, right[name]) for name, tensor in left.items()
    )
