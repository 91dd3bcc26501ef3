"""FedBN: every client has its own normalization."""

from dataclasses import dataclass

from fedsol.algorithms.base import Algorithm
from fedsol.config.fields import setting


@dataclass(frozen=True)
class FedBN(Algorithm):
    """FedAvg of all but the normalization layers, whose weights and running statistics never leave their client.

    Li et al., "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", ICLR 2021, algorithm 1:
    for clients whose inputs look different. A model without such layers makes it FedAvg.
    """

    exchange: str = setting("not-norms", "what is averaged, as in server.exchange; the rest stays with each client")
