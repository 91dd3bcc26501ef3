"""Small steps shared by every reader: arrays checked and made into splits."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsol.data.types import Split
from fedsol.errors import InputError

Array = NDArray[np.generic]
IMAGES_PER_BLOCK = 4096


def make_split(images: NDArray[np.uint8], labels: Array, classes: int, source: Path | str) -> Split:
    """A split of images (N, C, H, W) and labels that must be 0 … classes - 1; errors name `source`."""
    if len(images) != len(labels):
        raise InputError(f"{source}: {len(images)} images but {len(labels)} labels; there must be as many")
    numbers = labels.astype(np.int64)
    wrong = (numbers < 0) | (numbers >= classes)
    if wrong.any():
        value = numbers[wrong][0]
        raise InputError(f"{source}: label {value} is not allowed; labels must be 0 to {classes - 1}")
    return Split(torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(numbers))


def stratified_test_indices(labels: Array, count: int) -> NDArray[np.int64]:
    """Indices, in order, of `count` samples that hold every class in proportion (within one sample).

    They are evenly spaced among the samples ordered by label: the same for ever, without a random number.
    """
    by_label = np.argsort(labels, kind="stable")
    picks = ((np.arange(count) + 0.5) * len(labels) / max(count, 1)).astype(np.int64)
    return np.sort(by_label[picks]).astype(np.int64)


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of uint8 images (N, C, H, W), with pixels scaled to 0 … 1.

    Pixels are counted block by block, so memory-mapped images are never held in memory as a whole.
    """
    channels = images.shape[1]
    counts = torch.zeros(channels, 256, dtype=torch.float64)
    for block in torch.split(images, IMAGES_PER_BLOCK):
        for channel in range(channels):
            counts[channel] += torch.bincount(block[:, channel].flatten(), minlength=256)
    values = torch.arange(256, dtype=torch.float64) / 255
    shares = counts / counts.sum(dim=1, keepdim=True)
    mean = shares @ values
    std = (shares * (values - mean[:, None]) ** 2).sum(dim=1).sqrt()
    # A channel that never varies is only shifted: there is nothing to scale.
    std = torch.where(std > 0, std, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())
