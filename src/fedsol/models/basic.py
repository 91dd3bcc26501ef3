"""The base class of fedsol's models, and its three simple ones: `small`, `mlp` and `cnn`."""

import math

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """A body that computes features, and a head that computes logits from them."""

    body: nn.Module
    head: nn.Linear | nn.Conv2d

    def features(self, inputs: Tensor) -> Tensor:
        """Return what enters the head."""
        features: Tensor = self.body(inputs)
        return features

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits, one row per input."""
        logits: Tensor = self.head(self.features(inputs))
        return logits


class Small(Classifier):
    """One 3x3 convolution of stride 2, one hidden layer and the head: made for 8x8 digits.

    A stride instead of pooling halves the time of a step, most of which is pooling for images this small.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: int = 16, hidden: int = 64) -> None:
        super().__init__()
        channels, height, width_of_image = input_shape
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, kernel_size=3, padding=1, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(width * -(-height // 2) * -(-width_of_image // 2), hidden),
            nn.ReLU(),
        )
        self.head = nn.Linear(hidden, classes)


class MLP(Classifier):
    """Two hidden layers and the head on the flattened input of any shape."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, hidden: int = 64) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(input_shape), hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
        )
        self.head = nn.Linear(hidden, classes)


class CNN(Classifier):
    """Two 5x5 convolutions, each followed by 2x2 max-pooling, then a 512-unit layer and the head.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data" (2017), with torch's
    default initialization; most FedSOL experiments use it. Pooling comes before the activation: the result and its
    gradient are the same, with a quarter of the work.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.body = nn.Sequential(
            nn.Conv2d(channels, 32, kernel_size=5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * (height // 4) * (width // 4), 512),
            nn.ReLU(),
        )
        self.head = nn.Linear(512, classes)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the 512 features that enter the head."""
        # With channels last, torch pools on the CPU with vector instructions: the forward pass takes half the time.
        return super().features(inputs.contiguous(memory_format=torch.channels_last))
