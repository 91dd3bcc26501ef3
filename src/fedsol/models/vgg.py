"""VGG-11 for small images."""

import math

import torch.nn.functional as F
from torch import Tensor, nn

from fedsol.models.basic import Classifier

_POOL = 0
_CONFIGURATION_A = (64, _POOL, 128, _POOL, 256, 256, _POOL, 512, 512, _POOL, 512, 512, _POOL)
_SMALLEST_SIDE = 32  # five poolings halve it to 1


class VGG11(Classifier):
    """Configuration A without batch norm and dropout, with two 512-unit layers before the head.

    Simonyan & Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition" (2015). Convolutions
    start from N(0, 2 / (k^2 · output channels)), their biases from 0. A side shorter than 32 pixels is resized to 32.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.size = (max(height, _SMALLEST_SIDE), max(width, _SMALLEST_SIDE))
        self.body = nn.Sequential(
            *_convolutions(channels),
            nn.Flatten(),
            nn.Linear(512 * (self.size[0] // 32) * (self.size[1] // 32), 512),
            nn.ReLU(),
            nn.Linear(512, 512),
            nn.ReLU(),
        )
        self.head = nn.Linear(512, classes)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the 512 features that enter the head."""
        if inputs.shape[-2:] != self.size:
            inputs = F.interpolate(inputs, size=self.size, mode="bilinear", align_corners=False)
        return super().features(inputs)


def _convolutions(channels: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for width in _CONFIGURATION_A:
        if width == _POOL:
            layers.append(nn.MaxPool2d(2))
            continue
        convolution = nn.Conv2d(channels, width, kernel_size=3, padding=1)
        nn.init.normal_(convolution.weight, std=math.sqrt(2 / (3 * 3 * width)))
        nn.init.constant_(convolution.get_parameter("bias"), 0)
        layers += [convolution, nn.ReLU()]
        channels = width
    return layers
