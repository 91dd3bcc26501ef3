"""ResNet-18 for small images."""

import torch.nn.functional as F
from torch import Tensor, nn

from fedsol.models.basic import Classifier


class ResNet18(Classifier):
    """A 3x3 stem that preserves the image's size, four stages of two basic blocks, and global average pooling.

    He et al., "Deep Residual Learning for Image Recognition" (2016), in its form for 32x32 images, with torch's default
    initialization. Without `running_statistics`, batch norm normalizes by the current batch even in evaluation mode, so
    a prediction depends on the rest of its batch.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, running_statistics: bool = True) -> None:
        super().__init__()
        self.stem = nn.Conv2d(input_shape[0], 64, kernel_size=3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(64, track_running_stats=running_statistics)
        blocks: list[nn.Module] = []
        channels = 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks.append(BasicBlock(channels, width, stride, running_statistics))
            blocks.append(BasicBlock(width, width, 1, running_statistics))
            channels = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(512, classes)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the 512 averaged channels that enter the head."""
        maps: Tensor = self.blocks(F.relu(self.norm(self.stem(inputs))))
        return maps.mean(dim=(2, 3))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch norm, added to the input (projected where the shape changes)."""

    def __init__(self, channels: int, width: int, stride: int, running_statistics: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, kernel_size=3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width, track_running_stats=running_statistics)
        self.conv2 = nn.Conv2d(width, width, kernel_size=3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width, track_running_stats=running_statistics)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, width, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(width, track_running_stats=running_statistics),
            )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the block's output maps."""
        hidden = F.relu(self.norm1(self.conv1(inputs)))
        return F.relu(self.norm2(self.conv2(hidden)) + self.shortcut(inputs))
