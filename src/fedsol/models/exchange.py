"""Which weights clients exchange with the server, and which they keep (`[server] exchange`)."""

import re

from fedsol.errors import InputError
from fedsol.models.split import SplitModel


def kept_names(model: SplitModel, exchange: str, field: str) -> frozenset[str]:
    """Return the names of the weights that stay with the clients, by a word or by a regular expression of the others.

    The running statistics of a layer are exchanged with its part of the model.
    """
    every = frozenset(model.initial_weights())
    match exchange:
        case "all":
            return frozenset()
        case "body" | "head" if not model.body_names:
            raise InputError(f"{field}: {exchange!r} is not allowed: the model has no weights but its classifier's")
        case "body":
            return frozenset(model.head_weights)
        case "head":
            return every - set(model.head_weights)
        case "not-norms":
            return frozenset(model.norm_weights)
        case "none":
            return every
    found = {name for name in every if re.search(exchange, name)}
    if not found:
        raise InputError(f"{field}: {exchange!r} matches no weight; they are {', '.join(sorted(every))}")
    return every - found
