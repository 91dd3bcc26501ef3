"""kNN-Per: a client's samples as a memory that answers along with the model (Marfoq et al., ICML 2022)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

CANDIDATES = tuple(step / 10 for step in range(11))
"""Mixing weights that a client chooses from."""

DEFAULT_MIXING = 0.5


@dataclass(frozen=True)
class Memory:
    """Features of samples as a model sees them, and their labels."""

    features: Tensor
    labels: Tensor
    classes: int

    def nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return squared distances and positions of the `k` samples nearest to each query; ties go to the first."""
        distances: Tensor = torch.cdist(
            queries.double(), self.features.double(), compute_mode="donot_use_mm_for_euclid_dist"
        )
        ordered, positions = distances.sort(dim=1, stable=True)
        return ordered[:, :k] ** 2, positions[:, :k]

    def probabilities(self, queries: Tensor, k: int, scale: float) -> Tensor:
        """Return the neighbors' answer: each votes for its label with `exp(-d^2 / (features x scale))`, normalized."""
        squares, positions = self.nearest(queries, k)
        votes = torch.softmax(-squares / (self.features.shape[1] * scale), dim=1)
        answers = torch.zeros(len(queries), self.classes, dtype=votes.dtype, device=votes.device)
        return answers.scatter_add(1, self.labels[positions], votes)


@dataclass(frozen=True)
class Answers:
    """The answers of model and neighbors to the same queries, as probabilities."""

    model: Tensor
    neighbors: Tensor

    @classmethod
    def of(cls, logits: Tensor, neighbors: Tensor) -> "Answers":
        """Return the answers with the model's logits as probabilities."""
        return cls(F.softmax(logits.double(), dim=1), neighbors)

    def correct(self, labels: Tensor, mixing: float) -> int:
        """Return how many labels are right with weight `mixing` on the neighbors and the rest on the model."""
        mixed = mixing * self.neighbors + (1 - mixing) * self.model
        return int((mixed.argmax(dim=1) == labels).sum())


def choose_mixing(answers: Answers, labels: Tensor) -> float:
    """Return the most accurate candidate; in case of a tie, or without labels, the one nearest to 0.5."""
    if not len(labels):
        return DEFAULT_MIXING
    return max(CANDIDATES, key=lambda mixing: (answers.correct(labels, mixing), -abs(mixing - DEFAULT_MIXING)))
