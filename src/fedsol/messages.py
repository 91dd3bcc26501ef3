"""What crosses a process or a network: frozen, made of tensors and plain values only."""

from dataclasses import dataclass, field

from torch import Tensor

from fedsol.weights import Weights

State = dict[str, Tensor]


@dataclass(frozen=True)
class Job:
    """Server to client: train these weights on your data in this round."""

    client: int
    round: int
    weights: Weights
    """Parameters and buffers of the global model."""
    broadcast: State = field(default_factory=dict)
    """What the algorithm's server side sends to every client beside the weights."""
    state: State = field(default_factory=dict)
    """The client's own state after its last job (the initial one before its first)."""


@dataclass(frozen=True)
class Update:
    """Client to server: what came of a job."""

    client: int
    weights: Weights
    examples: int
    steps: int
    state: State = field(default_factory=dict)
    """The client's own state, to be handed back with its next job."""
    payload: State = field(default_factory=dict)
    """What the algorithm's client side sends beside the weights."""
    metrics: dict[str, float] = field(default_factory=dict)
    share: float = 0.0
    """Weight of this update in the average; the server sets it before aggregating."""


@dataclass(frozen=True)
class ServerState:
    """Everything the server carries from one round to the next."""

    weights: Weights
    """Parameters and buffers of the global model."""
    parameters: tuple[str, ...]
    """Which of the weights are trained; the others are buffers."""
    clients: int
    """Number of all clients, sampled or not."""
    state: State = field(default_factory=dict)
    """The algorithm's."""
    optimizer: State = field(default_factory=dict)
    """The server optimiser's, if there is one."""
