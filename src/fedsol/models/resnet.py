"""ResNet-18 for small images."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from fedsol.models.basic import Classifier


class ResNet18(Classifier):
    """A 3x3 stem that preserves the image's size, four stages of two basic blocks, and global average pooling.

    He et al., "Deep Residual Learning for Image Recognition" (2016), in its form for 32x32 images, with torch's default
    initialization. `norm` makes the normalization of this many channels.
    """

    def __init__(
        self, input_shape: tuple[int, ...], classes: int, *, norm: Callable[[int], nn.Module] = nn.BatchNorm2d
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(input_shape[0], 64, kernel_size=3, padding=1, bias=False)
        self.norm = norm(64)
        blocks: list[nn.Module] = []
        channels = 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks.append(BasicBlock(channels, width, stride, norm))
            blocks.append(BasicBlock(width, width, 1, norm))
            channels = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(512, classes)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the 512 averaged channels that enter the head."""
        maps: Tensor = self.blocks(F.relu(self.norm(self.stem(inputs))))
        return maps.mean(dim=(2, 3))


def with_batch_statistics(input_shape: tuple[int, ...], classes: int) -> ResNet18:
    """Return a ResNet-18 that normalizes by the batch in evaluation, too: a prediction depends on its batch."""
    return ResNet18(input_shape, classes, norm=partial(nn.BatchNorm2d, track_running_stats=False))


def with_group_norm(input_shape: tuple[int, ...], classes: int, *, groups: int = 32) -> ResNet18:
    """Return a ResNet-18 with group norm (Wu and He, 2018): it has no statistics to average, and knows no batch."""
    return ResNet18(input_shape, classes, norm=partial(nn.GroupNorm, groups))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, each normalized, added to the input (projected where the shape changes)."""

    def __init__(self, channels: int, width: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, kernel_size=3, stride=stride, padding=1, bias=False)
        self.norm1 = norm(width)
        self.conv2 = nn.Conv2d(width, width, kernel_size=3, padding=1, bias=False)
        self.norm2 = norm(width)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, width, kernel_size=1, stride=stride, bias=False),
                norm(width),
            )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the block's output maps."""
        hidden = F.relu(self.norm1(self.conv1(inputs)))
        return F.relu(self.norm2(self.conv2(hidden)) + self.shortcut(inputs))
