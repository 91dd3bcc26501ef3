"""Messages between processes or over a network: frozen, made of tensors and plain values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedsol.core.weights import Weights, prefixed, without_prefix

State = dict[str, Tensor]


@dataclass(frozen=True)
class Job:
    """Server to client: train these weights on your data in this round."""

    client: int
    round: int
    weights: Weights
    """Parameters and buffers of the global model."""
    broadcast: State = field(default_factory=dict)
    """What the algorithm's server side sends to every client besides the weights."""
    state: State = field(default_factory=dict)
    """The client's own state after its last job (the initial one before its first)."""
    work: float = 1.0
    """The share of its local steps that the client should do."""


@dataclass(frozen=True)
class Update:
    """Client to server: the result of a job."""

    client: int
    weights: Weights
    examples: int
    steps: int
    state: State = field(default_factory=dict)
    """The client's own state, to be sent back with its next job."""
    payload: State = field(default_factory=dict)
    """What the algorithm's client side sends besides the weights."""
    metrics: dict[str, float] = field(default_factory=dict)
    share: float = 0.0
    """Weight of this update in the average; the server sets it before aggregating."""


@dataclass(frozen=True)
class Missing:
    """A job without an update."""

    client: int
    reason: str
    malformed: bool = False
    """Whether there was an answer that is not a valid update, rather than none."""
    reached: bool = True
    """Whether the job was sent at all."""
    abstained: bool = False
    """Whether the client refused because its privacy budget is too small."""


@dataclass(frozen=True)
class ServerState:
    """Everything the server carries from one round to the next."""

    weights: Weights
    """Parameters and buffers of the global model."""
    parameters: tuple[str, ...]
    """Which of the weights are trained; the others are buffers."""
    clients: int
    """Total number of clients, sampled or not."""
    state: State = field(default_factory=dict)
    """The algorithm's own."""
    optimizer: State = field(default_factory=dict)
    """The server optimizer's, if there is one."""
    recent_changes: tuple[tuple[float, ...], ...] = ()
    """Sizes of the changes that were accepted last, oldest first, if `server.max_change` bounds them."""
    clip_norm: float | None = None
    """The next round's, if `privacy.clip_norm` is adaptive."""


EPSILONS = ("epsilon", "epsilon_next")
"""The metrics of an update by a node that accounts for its own samples: what it has spent, and will after one more."""

_VALUES, _TENSORS = ("client", "examples", "steps", "metrics"), ("weights", "state", "payload")


def pack_update(update: Update) -> tuple[dict[str, Any], State]:
    """Return an update as plain values and named tensors, fit for JSON and safetensors."""
    tensors: State = {}
    for part in _TENSORS:
        tensors |= prefixed(part, getattr(update, part))
    return {name: getattr(update, name) for name in _VALUES}, tensors


def unpack_update(values: Mapping[str, Any], tensors: State) -> Update:
    """Return the update that was packed."""
    fields: dict[str, Any] = {name: values[name] for name in _VALUES}
    return Update(**fields | {part: without_prefix(part, tensors) for part in _TENSORS})


KEPT_SINCE = "kept-since-round"


def state_reference(round_number: int) -> State:
    """Return what is sent in place of a state that stays with its client: its round (0: the initial state)."""
    return {KEPT_SINCE: torch.tensor(round_number)}


def referenced_round(state: State) -> int | None:
    """Return the round of a state reference; None if this is a state itself."""
    return int(state[KEPT_SINCE]) if KEPT_SINCE in state else None
