"""Bytes between the server and a client: read off what the algorithm itself sends, so they are exact."""

from dataclasses import replace
from typing import NamedTuple

from fedsol.algorithms.base import Algorithm
from fedsol.core.messages import ServerState
from fedsol.core.weights import pick, size_in_bytes
from fedsol.federation.federation import Federation
from fedsol.training.updates import expected_answers


class ClientBytes(NamedTuple):
    """Bytes of tensors for one client in one round, as the rows of metrics.jsonl count them: without framing."""

    down: int
    """Weights and broadcast."""
    up: int
    """Weights and payload."""
    state: int
    """What the client carries on to its next round. A simulation keeps it for it; in a deployment it stays there."""
    test: int
    """Weights alone, which a client receives that tests the global model on what it held out."""


def bytes_per_client(federation: Federation, algorithm: Algorithm | None = None) -> ClientBytes:
    """What a client of the federation receives, sends and keeps (default: with the federation's own algorithm)."""
    if algorithm is not None:
        federation = replace(federation, algorithm=algorithm)
    server = initial_server(federation)
    weights = server.weights
    payload, state = expected_answers(federation, server, federation.initial_state(), keeps_states=False)
    size = size_in_bytes(weights)
    broadcast = federation.algorithm.broadcast(server)
    return ClientBytes(size + size_in_bytes(broadcast), size + size_in_bytes(payload), size_in_bytes(state), size)


def initial_server(federation: Federation) -> ServerState:
    """The server before the first round."""
    weights, names = federation.initial_weights(), federation.model.names
    state = federation.algorithm.init_server(pick(weights, names))
    return ServerState(weights, names, federation.clients, state)
