"""The convolutional network of the federated averaging paper, the one most FedSOL experiments use."""

from torch import Tensor, nn


class CNN(nn.Module):
    """Two 5x5 convolutions, each followed by 2x2 max-pooling, then a 512-unit layer and the head.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data" (2017), with
    torch's default initialisation.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.body = nn.Sequential(
            nn.Conv2d(channels, 32, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * (height // 4) * (width // 4), 512),
            nn.ReLU(),
        )
        self.head = nn.Linear(512, classes)

    def features(self, inputs: Tensor) -> Tensor:
        """The 512 features that enter the head."""
        features: Tensor = self.body(inputs)
        return features

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits, one row per input."""
        logits: Tensor = self.head(self.features(inputs))
        return logits
