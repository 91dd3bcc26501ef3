"""Models small enough for a laptop and a test: a convolutional one for tiny images, one for vectors."""

import math

from torch import nn

from fedsol.models.classifier import Classifier


class Small(Classifier):
    """One 3x3 convolution of stride 2, one hidden layer and the head: made for 8x8 digits.

    A stride in place of pooling halves the time of a step, which for images this small is mostly pooling.
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
    """Two hidden layers and the head on the flattened input, whatever its shape."""

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
