"""`tabular`: a network for the columns of a table, numbers and categories."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedsol.models.basic import MLP


class Tabular(MLP):
    """An embedding for every categorical column beside the numbers, then two hidden layers and the head.

    It is called with `numbers` (N, F) and, if there are categories, `categories` (N, C). A category takes
    `embedding` numbers, or half as many as it has codes if that is less. Code 0, a value that the training set lacks,
    is all zeros and stays so.
    """

    def __init__(
        self, numbers: int, categories: Sequence[int], classes: int, *, hidden: int = 64, embedding: int = 8
    ) -> None:
        widths = [min(embedding, -(-codes // 2)) for codes in categories]
        super().__init__((numbers + sum(widths),), classes, hidden=hidden)
        self.embeddings = nn.ModuleList(
            nn.Embedding(codes, width, padding_idx=0) for codes, width in zip(categories, widths, strict=True)
        )

    def features(self, numbers: Tensor, categories: Tensor | None = None) -> Tensor:
        """Return what enters the head."""
        columns = [] if categories is None else categories.unbind(dim=1)
        embedded = [embedding(column) for embedding, column in zip(self.embeddings, columns, strict=True)]
        return super().features(torch.cat([numbers, *embedded], dim=1))

    def forward(self, numbers: Tensor, categories: Tensor | None = None) -> Tensor:
        """Return the logits, one row per sample."""
        logits: Tensor = self.head(self.features(numbers, categories))
        return logits
