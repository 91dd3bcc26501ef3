"""FedRep: every client has its own classifier, fitted before the shared representation."""

from dataclasses import dataclass

from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.task import Where
from fedsol.config.fields import PositiveShare, setting


@dataclass(frozen=True)
class FedRep(Algorithm):
    """FedAvg of the body; each client first fits its own classifier to the body, then the body to the classifier.

    Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", ICML 2021, algorithm 1. The
    local optimizer starts anew with each part.
    """

    head_share: PositiveShare = setting(0.5, "share of the local steps that train the classifier, first")

    @property
    def exchange(self) -> str:
        return "body"

    def part(self, step: int, steps: int) -> Where:
        return "head" if step < max(1, round(self.head_share * steps)) else "body"
