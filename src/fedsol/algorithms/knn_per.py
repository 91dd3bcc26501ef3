"""kNN-Per: FedAvg, and a memory of its own for each client."""

from dataclasses import asdict, dataclass
from typing import Any

from fedsol.algorithms.base import Algorithm
from fedsol.config.fields import Count, Positive, Share, setting


@dataclass(frozen=True)
class KNNPer(Algorithm):
    """FedAvg whose personal models also ask the nearest neighbours among the client's own samples.

    Marfoq et al., "Personalized Federated Learning through Local Memorization", ICML 2022. The federation is FedAvg's;
    the settings are those of `fedsol personalize`, which can use them on top of any other method.
    """

    k: Count = setting(5, "neighbours that are asked")
    capacity: Count = setting(500, "samples that a client remembers")
    mixing: Share = setting(0.5, "weight of the neighbours' answer; the rest is the model's")
    scale: Positive = setting(1.0, "a neighbour at distance d counts exp(-d^2 / (features x scale))")

    def personal_settings(self) -> dict[str, Any]:
        return {"method": "knn-per", **asdict(self)}
