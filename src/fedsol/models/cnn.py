"""The convolutional network of the federated averaging paper, the one most FedSOL experiments use."""

import torch
from torch import Tensor, nn

from fedsol.models.classifier import Classifier


class CNN(Classifier):
    """Two 5x5 convolutions, each followed by 2x2 max-pooling, then a 512-unit layer and the head.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data" (2017), with
    torch's default initialisation. Pooling comes before the activation: the largest of four values is the same before
    and after a ReLU, and so is its gradient, but there is a quarter of the work.
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
        """The 512 features that enter the head."""
        # With channels last, torch pools on the CPU with vector instructions: the forward pass takes half the time.
        return super().features(inputs.contiguous(memory_format=torch.channels_last))
