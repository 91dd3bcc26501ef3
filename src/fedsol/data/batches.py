"""The batches a client trains on and the batches a model is tested on.

Images are normalized; for training they are also cropped, flipped and cut out. Transforms work on whole batches, and
everything random comes from the generator that is passed in.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsol.data.types import MASK, UNSCALED, Augmentation, Dataset, Inputs, Split, pick

DRAWS_PER_IMAGE = 5
"""Row offset, column offset, flip, cutout row and cutout column."""

NORMALIZED_AT_ONCE = 2**22
"""Bytes of a client's images, as a model sees them, up to which they are normalized once and not in every epoch."""


@dataclass(frozen=True)
class Batch:
    """Inputs as the model sees them, and their labels."""

    inputs: Inputs
    labels: Tensor
    further: tuple["Batch", ...] = ()
    """The batches that follow it in the same step, for a method that draws several."""

    def __len__(self) -> int:
        return len(self.labels)


def batches(
    dataset: Dataset,
    indices: Tensor,
    batch_size: int,
    epochs: int,
    generator: torch.Generator,
    device: torch.device | str = "cpu",
) -> Iterator[Batch]:
    """Yield training batches of the samples at `indices`, reshuffled for each epoch; the last may be smaller.

    The order and the augmentation come from `generator` alone (a CPU generator).
    """
    split, transform = dataset.train, partial(augment, dataset=dataset, generator=generator)
    images = split.images
    if images is not None and torch.device(device).type == "cpu" and _is_only_normalized(dataset, len(indices)):
        own = Batch(normalize(images[indices], dataset), split.labels[indices])
        yield from _shuffled(own, batch_size, epochs, generator)
        return
    for _ in range(epochs):
        order = indices[torch.randperm(len(indices), generator=generator)]
        for chosen in torch.split(order, batch_size):
            if len(chosen):
                yield _batch(split, chosen, device, transform)


def _shuffled(own: Batch, batch_size: int, epochs: int, generator: torch.Generator) -> Iterator[Batch]:
    """Yield batches of a client's normalized images.

    Nothing augments them; their draws are made all the same, on which the order of later epochs depends.
    """
    assert isinstance(own.inputs, Tensor)
    for _ in range(epochs):
        order = torch.randperm(len(own), generator=generator)
        _draw(len(own), generator)
        for chosen in torch.split(order, batch_size):
            if len(chosen):
                yield Batch(own.inputs[chosen], own.labels[chosen])


def _is_only_normalized(dataset: Dataset, count: int) -> bool:
    """Return whether training changes nothing about this many images but their scale, and they are few."""
    settings = dataset.augmentation
    is_changed = settings.pad or settings.flip or settings.cutout
    size = 4 * count * math.prod(dataset.input_shape)
    return not is_changed and size <= NORMALIZED_AT_ONCE


def in_groups(stream: Iterator[Batch], count: int) -> Iterator[Batch]:
    """Yield one batch per step of `count` batches, with the others as its `further`; the last step may have fewer."""
    if count == 1:
        yield from stream
        return
    while group := tuple(islice(stream, count)):
        yield replace(group[0], further=group[1:])


def evaluation_batches(
    split: Split,
    dataset: Dataset,
    batch_size: int,
    device: torch.device | str = "cpu",
    indices: Tensor | None = None,
) -> Iterator[Batch]:
    """Yield batches in the stored order (or that of `indices`), normalized only."""
    count = len(split) if indices is None else len(indices)
    for start in range(0, count, batch_size):
        stop = min(start + batch_size, count)
        chosen = slice(start, stop) if indices is None else indices[start:stop]
        yield _batch(split, chosen, device, lambda images: normalize(images, dataset))


def _batch(
    split: Split, chosen: Tensor | slice, device: torch.device | str, transform: Callable[[Tensor], Tensor]
) -> Batch:
    inputs, labels = pick(split.inputs, chosen), split.labels[chosen]
    if isinstance(inputs, Tensor):
        return Batch(transform(_moved(inputs, device)), _moved(labels, device))
    if MASK in inputs:
        inputs, labels = _trimmed(inputs, labels)
    return Batch({name: _moved(tensor, device) for name, tensor in inputs.items()}, _moved(labels, device))


def _trimmed(inputs: dict[str, Tensor], labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Cut off the columns that are padding in every sample of the batch."""
    mask = inputs[MASK]
    stored = mask.shape[1]
    columns = mask.any(dim=0).nonzero()
    used = int(columns.max()) + 1 if len(columns) else 1
    cut = {n: t[:, :used] if t.ndim > 1 and t.shape[1] == stored else t for n, t in inputs.items()}
    return cut, labels[:, :used] if labels.ndim > 1 and labels.shape[1] == stored else labels


def _moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Return the tensor on a device; to a GPU through pinned memory, so that the copy overlaps with computation."""
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def normalize(inputs: Tensor, dataset: Dataset) -> Tensor:
    """Return the inputs as a model sees them in tests: `(pixel / 255 - mean) / std`; floats: `(x - mean) / std`."""
    if inputs.dtype != torch.uint8:
        return _standardized(inputs, dataset)
    return _with_channels(_normalized(inputs, dataset), dataset.channels)


def augment(inputs: Tensor, dataset: Dataset, generator: torch.Generator) -> Tensor:
    """Return the inputs as a model sees them in training: cropped, flipped, normalized, then cut out.

    Every image takes the same number of draws from `generator`, whichever transforms `dataset.augmentation` uses. The
    draws are made on the CPU, so they do not depend on the device of the inputs. Floats are only standardized,
    without a draw.
    """
    if inputs.dtype != torch.uint8:
        return _standardized(inputs, dataset)
    choices = _draw(len(inputs), generator).to(inputs.device)
    settings = dataset.augmentation
    images = inputs
    if settings.pad or settings.flip:
        images = _cropped_and_flipped(images, settings, choices[:3])
    images = _normalized(images, dataset)
    if settings.cutout:
        images = _cut_out(images, settings.cutout, choices[3:])
    return _with_channels(images, dataset.channels)


def _draw(images: int, generator: torch.Generator) -> Tensor:
    return torch.rand(DRAWS_PER_IMAGE, images, generator=generator, dtype=torch.float64)


def _below(choice: Tensor, limit: int) -> Tensor:
    """Return uniform integers in [0, limit) from uniform floats in [0, 1)."""
    # A float just below 1 times `limit` may be rounded up to `limit` itself.
    return (choice * limit).long().clamp_(max=limit - 1)


def _cropped_and_flipped(images: Tensor, settings: Augmentation, choices: Tensor) -> Tensor:
    """Pad each image, crop it back to its size at a random place, and mirror it with probability one half.

    Cropping and mirroring only decide where each pixel comes from, so both are one gather from the flat images.
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
    """Mirror positions outside of [0, size) at the border pixels, which are not repeated."""
    last = size - 1
    return last - (last - positions.abs()).abs()


def _standardized(inputs: Tensor, dataset: Dataset) -> Tensor:
    """Return floats less the mean, divided by std, along the first axis of a sample; the ids of tokens as they are."""
    if (dataset.mean, dataset.std) == UNSCALED or inputs.dtype != torch.float32:
        return inputs
    mean, std = (
        torch.tensor(values, device=inputs.device).view(-1, *(1 for _ in inputs.shape[2:]))
        for values in (dataset.mean, dataset.std)
    )
    return (inputs - mean) / std


def _normalized(images: Tensor, dataset: Dataset) -> Tensor:
    scale, shift = _scale_and_shift(dataset.mean, dataset.std, images.device)
    return images.float().mul_(scale).add_(shift)


@lru_cache
def _scale_and_shift(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return `(x / 255 - mean) / std` as one multiplication and one addition, by channel."""
    deviation = torch.tensor(std, dtype=torch.float64)
    scale = (1 / (255 * deviation)).float()
    shift = (-torch.tensor(mean, dtype=torch.float64) / deviation).float()
    return scale[:, None, None].to(device), shift[:, None, None].to(device)


def _cut_out(images: Tensor, side: int, choices: Tensor) -> Tensor:
    """Set a square around a random center of each image to zero, clipped at the border."""
    height, width = images.shape[2:]
    in_rows = _near(_below(choices[0], height), height, side)
    in_columns = _near(_below(choices[1], width), width, side)
    visible = ~(in_rows[:, :, None] & in_columns[:, None, :])
    # Twice as fast as masked_fill_; that a zero may come out as -0.0 changes no result.
    return images.mul_(visible[:, None])


def _near(centers: Tensor, size: int, side: int) -> Tensor:
    """Return, for each center, which of `size` positions lie in [center - side // 2, center + side - side // 2)."""
    distance = torch.arange(size, device=centers.device) - centers[:, None]
    return (distance >= -(side // 2)) & (distance < side - side // 2)


def _with_channels(images: Tensor, channels: int) -> Tensor:
    if images.shape[1] == channels:
        return images
    return images.expand(-1, channels, -1, -1).contiguous()
