"""Is an update fit to be aggregated?"""

import torch

from fedsol.messages import Update
from fedsol.weights import Weights


def reason_to_reject(update: Update, expected: Weights) -> str | None:
    """Why an update must not enter the average, or None: names, shapes, types and finite values are checked."""
    missing = expected.keys() - update.weights.keys()
    unknown = update.weights.keys() - expected.keys()
    if missing or unknown:
        return f"has wrong names (missing {sorted(missing)}, unknown {sorted(unknown)})"
    for name, tensor in expected.items():
        found = update.weights[name]
        if found.shape != tensor.shape or found.dtype != tensor.dtype:
            wanted = f"{tuple(tensor.shape)} {tensor.dtype}"
            return f"has {name} of {tuple(found.shape)} {found.dtype} where {wanted} is needed"
    for name, tensor in {**update.weights, **update.payload, **update.state}.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return f"has values in {name} that are not finite"
    if update.examples < 1:
        return "was trained on no example"
    return None
