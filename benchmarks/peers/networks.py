"""The networks of the comparison, in plain torch: the peers run where fedsol is not installed."""

import torch
from torch import Tensor, nn


class SmallNetwork(nn.Sequential):
    """The same layers as fedsol's model `small`, for 8 x 8 digits."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 16, kernel_size=3, padding=1, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 4 * 4, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )


class PaperNetwork(nn.Sequential):
    """The CNN of the federated averaging paper for 32 x 32 color images, layer by layer as papers write it."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 32, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 8 * 8, 512),
            nn.ReLU(),
            nn.Linear(512, 10),
        )


class TunedNetwork(nn.Sequential):
    """The same function as `PaperNetwork`, computed as fedsol's model `cnn` does: pooled first, channels last."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 32, kernel_size=5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 8 * 8, 512),
            nn.ReLU(),
            nn.Linear(512, 10),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs.contiguous(memory_format=torch.channels_last))


NETWORKS = {"small": SmallNetwork, "paper": PaperNetwork, "tuned": TunedNetwork}
