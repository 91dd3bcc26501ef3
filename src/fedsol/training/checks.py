"""Is an update fit to be aggregated?"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from fedsol.core.messages import ServerState, State, Update
from fedsol.core.weights import norm, pick, subtract

ABSURD = 1e6
"""An update that moves this many times further than the global weights are long is a mistake, not a step."""


def reason_to_reject(update: Update, server: ServerState, payload: State, state: State) -> str | None:
    """Why an update must not enter the average, or None.

    Names, shapes and types must be those of the global weights; those of payload and state must be as expected; values
    must be finite and the change of a sane size.
    """
    for what, found, expected in (
        ("weights", update.weights, server.weights),
        ("payload", update.payload, payload),
        ("state", update.state, state),
    ):
        problem = _unlike(found, expected) or not_finite(found)
        if problem:
            return f"has {what} {problem}"
    if update.examples < 1:
        return "was trained on no example"
    if not math.isfinite(update.metrics.get("train_loss", 0.0)):
        return "has a training loss that is not finite"
    anchor = pick(server.weights, server.parameters)
    if float(norm(subtract(anchor, update.weights))) > ABSURD * max(1.0, float(norm(anchor))):
        return "has weights absurdly far from the global ones"
    return None


def _unlike(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str | None:
    missing, unknown = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    if missing or unknown:
        return f"with wrong names (missing {missing}, unknown {unknown})"
    for name, tensor in expected.items():
        other = found[name]
        if other.shape != tensor.shape or other.dtype != tensor.dtype:
            wanted = f"{tuple(tensor.shape)} {tensor.dtype}"
            return f"with {name} of {tuple(other.shape)} {other.dtype} where {wanted} is needed"
    return None


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Says which of the tensors has values that are not finite, if one has."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return f"that are not finite in {name}"
    return None
