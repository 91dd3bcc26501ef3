"""From stored pixels to what a model sees: normalised floats, in training cropped, flipped and cut out.

Everything is done on whole batches, and everything random comes from the generator that is passed in.
"""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsol.data.types import Augmentation, Dataset

DRAWS_PER_IMAGE = 5
"""Row offset, column offset, flip, cutout row and cutout column."""


def normalise(inputs: Tensor, dataset: Dataset) -> Tensor:
    """The inputs as a model sees them in tests: `(pixel / 255 - mean) / std`; floats stay as they are."""
    if inputs.dtype != torch.uint8:
        return inputs
    return _with_channels(_normalised(inputs, dataset), dataset.channels)


def augment(inputs: Tensor, dataset: Dataset, generator: torch.Generator) -> Tensor:
    """The inputs as a model sees them in training: cropped, flipped, normalised, then cut out.

    Which of the transforms are used is `dataset.augmentation`. Every image costs the same number of draws
    from `generator` (on the CPU, so that the numbers do not depend on the device of the inputs), whatever is
    used. Floats are returned as they are, without a draw.
    """
    if inputs.dtype != torch.uint8:
        return inputs
    choices = torch.rand(DRAWS_PER_IMAGE, len(inputs), generator=generator, dtype=torch.float64)
    choices = choices.to(inputs.device)
    settings = dataset.augmentation
    images = inputs
    if settings.pad or settings.flip:
        images = _cropped_and_flipped(images, settings, choices[:3])
    images = _normalised(images, dataset)
    if settings.cutout:
        images = _cut_out(images, settings.cutout, choices[3:])
    return _with_channels(images, dataset.channels)


def _below(choice: Tensor, limit: int) -> Tensor:
    """Uniform integers in [0, limit) from uniform floats in [0, 1)."""
    # A float just below 1 times `limit` may be rounded up to `limit` itself.
    return (choice * limit).long().clamp_(max=limit - 1)


def _cropped_and_flipped(images: Tensor, settings: Augmentation, choices: Tensor) -> Tensor:
    """Each image padded, cropped back to its size at a random place, and mirrored with probability one half.

    A crop and a mirror only say where each pixel comes from, so both are one gather from the flat images.
    """
    count, channels, height, width = images.shape
    pad = settings.pad
    rows = torch.arange(height, device=images.device) + _below(choices[0], 2 * pad + 1)[:, None]
    columns = torch.arange(width, device=images.device).expand(count, -1)
    if settings.flip:
        columns = torch.where(choices[2, :, None] < 0.5, width - 1 - columns, columns)
    columns = columns + _below(choices[1], 2 * pad + 1)[:, None]
    source, source_width = images, width
    if pad and settings.pad_mode == "zero":
        source, source_width = F.pad(images, (pad, pad, pad, pad)), width + 2 * pad
    elif pad:
        rows, columns = _reflected(rows - pad, height), _reflected(columns - pad, width)
    origin = (rows[:, :, None] * source_width + columns[:, None, :]).view(count, 1, -1)
    return source.flatten(2).gather(2, origin.expand(-1, channels, -1)).view(images.shape)


def _reflected(positions: Tensor, size: int) -> Tensor:
    """Positions outside of [0, size) mirrored at the border pixels, which are not repeated."""
    last = size - 1
    return last - (last - positions.abs()).abs()


def _normalised(images: Tensor, dataset: Dataset) -> Tensor:
    scale, shift = _scale_and_shift(dataset.mean, dataset.std, images.device)
    return images.float().mul_(scale).add_(shift)


@lru_cache
def _scale_and_shift(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """`(x / 255 - mean) / std` as one multiplication and one addition, by channel."""
    deviation = torch.tensor(std, dtype=torch.float64)
    scale = (1 / (255 * deviation)).float()
    shift = (-torch.tensor(mean, dtype=torch.float64) / deviation).float()
    return scale[:, None, None].to(device), shift[:, None, None].to(device)


def _cut_out(images: Tensor, side: int, choices: Tensor) -> Tensor:
    """A square of zeros around a random centre in each image, clipped at the border."""
    height, width = images.shape[2:]
    in_rows = _near(_below(choices[0], height), height, side)
    in_columns = _near(_below(choices[1], width), width, side)
    keep = ~(in_rows[:, :, None] & in_columns[:, None, :])
    # Twice as fast as masked_fill_; that a zero may come out as -0.0 changes no result.
    return images.mul_(keep[:, None])


def _near(centres: Tensor, size: int, side: int) -> Tensor:
    """For each centre, which of `size` positions lie in [centre - side // 2, centre + side - side // 2)."""
    distance = torch.arange(size, device=centres.device) - centres[:, None]
    return (distance >= -(side // 2)) & (distance < side - side // 2)


def _with_channels(images: Tensor, channels: int) -> Tensor:
    if images.shape[1] == channels:
        return images
    return images.expand(-1, channels, -1, -1).contiguous()
