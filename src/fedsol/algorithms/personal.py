"""Local-only: every client alone."""

from dataclasses import dataclass
from typing import Any

from fedsol.algorithms.base import Algorithm
from fedsol.config.fields import Count, PositiveShare, setting


@dataclass(frozen=True)
class LocalOnly(Algorithm):
    """No federation: every client trains the initial model on its own data, as `fedsol personalize` then does.

    In a run nobody takes part in a round, so the global model stays what it was; a single round is the default.
    """

    federates = False

    epochs: Count = setting(200, "passes over the client's data")
    lr_decay: PositiveShare = setting(0.99, "factor on the learning rate after each epoch")

    def personal_settings(self) -> dict[str, Any]:
        return {"method": "local-only", "epochs": (self.epochs,), "lr_decay": self.lr_decay}
