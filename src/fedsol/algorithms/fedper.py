"""FedPer: every client has its own classifier."""

from dataclasses import dataclass

from fedsol.algorithms.base import Algorithm
from fedsol.config.fields import setting


@dataclass(frozen=True)
class FedPer(Algorithm):
    """FedAvg of the body; the classifier (or other layers) is trained along with it and never leaves its client.

    Arivazhagan et al., "Federated Learning with Personalization Layers", 2019, algorithms 1 and 2. With everything
    exchanged it is FedAvg; with nothing, every client trains alone.
    """

    exchange: str = setting("body", "what is averaged, as in server.exchange; the rest are personalization layers")
