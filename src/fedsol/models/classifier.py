"""Classifier: what the models of fedsol have in common."""

from torch import Tensor, nn


class Classifier(nn.Module):
    """A body that makes features, and a head that makes logits of them."""

    body: nn.Module
    head: nn.Linear

    def features(self, inputs: Tensor) -> Tensor:
        """What enters the head."""
        features: Tensor = self.body(inputs)
        return features

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits, one row per input."""
        logits: Tensor = self.head(self.features(inputs))
        return logits
