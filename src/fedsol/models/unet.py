"""`unet`: a small U-Net for a class per pixel."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsol.models.basic import Classifier


class UNet(Classifier):
    """Two levels down and two up, with the maps of each level beside those that come back up; a 1x1 convolution.

    Ronneberger, Fischer & Brox, "U-Net: Convolutional Networks for Biomedical Image Segmentation" (2015), with padding
    and with group norm in place of no norm: images of any size from 8x8, and no statistics of a batch.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [_convolutions(input_shape[0], width), _convolutions(width, 2 * width), _convolutions(2 * width, 4 * width)]
        )
        self.up = nn.ModuleList([_convolutions(6 * width, 2 * width), _convolutions(3 * width, width)])
        self.head = nn.Conv2d(width, classes, kernel_size=1)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the maps that enter the head, of the size of the images."""
        first = self.down[0](inputs)
        second = self.down[1](F.max_pool2d(first, 2))
        maps: Tensor = self.down[2](F.max_pool2d(second, 2))
        for level, convolutions in zip((second, first), self.up, strict=True):
            larger = F.interpolate(maps, size=level.shape[2:], mode="nearest")
            maps = convolutions(torch.cat([level, larger], dim=1))
        return maps


def _convolutions(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(math.gcd(4, outputs), outputs),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)
