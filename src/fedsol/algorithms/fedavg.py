"""FedAvg: plain local SGD, averaged."""

from dataclasses import dataclass

from fedsol.algorithms.base import Algorithm


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """Local SGD on the clients, averaged by the server.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
    algorithm 1 (FederatedAveraging). This is `Algorithm` with all its defaults.
    """
