"""Personal methods: every client gets its own model. `fedsol personalize` makes it, with these settings."""

from dataclasses import asdict, dataclass
from typing import Any

from fedsol.algorithms.base import Algorithm
from fedsol.config.fields import Count, NonNegative, Positive, PositiveShare, Share, setting


@dataclass(frozen=True)
class LocalOnly(Algorithm):
    """No federation: `fedsol personalize` trains the initial model on each client's own data.

    In a run no client takes part, so the global model stays unchanged; a single round is the default.
    """

    epochs: Count = setting(200, "passes over the client's data")
    lr_decay: PositiveShare = setting(0.99, "factor on the learning rate after each epoch")

    def personal_settings(self) -> dict[str, Any]:
        return {"method": "local-only", "epochs": (self.epochs,), "lr_decay": self.lr_decay}


@dataclass(frozen=True)
class Ditto(Algorithm):
    """FedAvg; personal models `v` add a pull to the global `w`, `lam / 2 ||v - w||^2`, to the local loss.

    Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, equation 1, whose second
    part is solved when the first is done: `fedsol personalize` starts at the final global weights and can do so on top
    of any other method. With `lam = 0` it is fine-tuning.
    """

    lam: NonNegative = setting(0.1, "strength of the pull toward the global model")

    def personal_settings(self) -> dict[str, Any]:
        return {"method": "ditto", **asdict(self)}


@dataclass(frozen=True)
class KNNPer(Algorithm):
    """FedAvg; personal models also ask the nearest neighbors among the client's own samples.

    Marfoq et al., "Personalized Federated Learning through Local Memorization", ICML 2022. The federation is FedAvg's;
    the settings are those of `fedsol personalize`, which can use them on top of any other method.
    """

    tasks = ("classification",)

    k: Count = setting(5, "number of neighbors")
    capacity: Count = setting(500, "number of samples that a client remembers")
    mixing: Share = setting(0.5, "weight of the neighbors' answer; the rest is the model's")
    scale: Positive = setting(1.0, "a neighbor at distance d counts exp(-d^2 / (features x scale))")

    def personal_settings(self) -> dict[str, Any]:
        return {"method": "knn-per", **asdict(self)}
