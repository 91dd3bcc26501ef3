"""LG-FedAvg: every client has its own representation."""

from dataclasses import dataclass

from fedsol.algorithms.base import Algorithm
from fedsol.config.fields import setting


@dataclass(frozen=True)
class LGFedAvg(Algorithm):
    """FedAvg of the classifier; the body, a client's local representation of its data, never leaves it.

    Liang et al., "Think Locally, Act Globally: Federated Learning with Local and Global Representations", 2020,
    algorithm 1, supervised.
    """

    exchange: str = setting("head", "what is averaged, as in server.exchange; the rest is the local representation")
