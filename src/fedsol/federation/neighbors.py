"""kNN-Per: a client's samples as a memory that answers beside the model (Marfoq et al., ICML 2022)."""

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
        """Squared distances and positions of the `k` nearest samples of each query: exact; of equals, the first."""
        distances: Tensor = torch.cdist(
            queries.double(), self.features.double(), compute_mode="donot_use_mm_for_euclid_dist"
        )
        ordered, positions = distances.sort(dim=1, stable=True)
        return ordered[:, :k] ** 2, positions[:, :k]

    def probabilities(self, queries: Tensor, k: int, scale: float) -> Tensor:
        """What the neighbours answer: each votes for its label with `exp(-d^2 / (features x scale))`, normalised."""
        squares, positions = self.nearest(queries, k)
        votes = torch.softmax(-squares / (self.features.shape[1] * scale), dim=1)
        answers = torch.zeros(len(queries), self.classes, dtype=votes.dtype, device=votes.device)
        return answers.scatter_add(1, self.labels[positions], votes)


@dataclass(frozen=True)
class Answers:
    """What model and neighbours each say to the same queries, as probabilities."""

    model: Tensor
    neighbours: Tensor

    @classmethod
    def of(cls, logits: Tensor, neighbours: Tensor) -> "Answers":
        """From the model's logits."""
        return cls(F.softmax(logits.double(), dim=1), neighbours)

    def correct(self, labels: Tensor, mixing: float) -> int:
        """How many labels are right if the neighbours count `mixing` and the model the rest."""
        mixed = mixing * self.neighbours + (1 - mixing) * self.model
        return int((mixed.argmax(dim=1) == labels).sum())


def choose_mixing(answers: Answers, labels: Tensor) -> float:
    """The candidate with most right answers; of equals the one nearest to 0.5, which also stands without any labels."""
    if not len(labels):
        return DEFAULT_MIXING
    return max(CANDIDATES, key=lambda mixing: (answers.correct(labels, mixing), -abs(mixing - DEFAULT_MIXING)))
