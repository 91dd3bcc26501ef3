"""Feature skew (`data.shift`): clients whose images look different, with the same classes."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedsol.data.types import Dataset
from fedsol.errors import InputError

Look = Callable[[Tensor], Tensor]


def _as_is(images: Tensor) -> Tensor:
    return images


def _inverted(images: Tensor) -> Tensor:
    return 255 - images


def _dimmed(images: Tensor) -> Tensor:
    return images // 4


def _turned(quarters: int) -> Look:
    return lambda images: torch.rot90(images, quarters, (2, 3))


LOOKS: dict[str, tuple[Look, ...]] = {
    "invert": (_as_is, _inverted),
    "rotate": (_as_is, _turned(1), _turned(2), _turned(3)),
    "dim": (_as_is, _dimmed),
    "mixed": (_as_is, _inverted, _turned(1), _dimmed),
}
"""How the images of clients look, in turn: client 0 has the first look, client 1 the second, and so on."""


def shifted(dataset: Dataset, partition: Sequence[Tensor], shift: str) -> Dataset:
    """Return the dataset with the training images of every client, those it holds out too, as the client sees them.

    The test set stays as it is.
    """
    if shift == "none":
        return dataset
    images = dataset.train.images
    if images is None:
        raise InputError(f"data.shift: {shift!r} is for images (got {dataset.name}, which has none)")
    if shift in ("rotate", "mixed") and images.shape[2] != images.shape[3]:
        raise InputError(f"data.shift: {shift!r} turns images, which must be square (got {tuple(images.shape[2:])})")
    if len(set(torch.cat(list(partition)).tolist())) < sum(map(len, partition)):
        raise InputError(f"data.shift: {shift!r} is not allowed with a partition in which clients share samples")
    looks, seen = LOOKS[shift], images.clone()
    for client, indices in enumerate(partition):
        seen[indices] = looks[client % len(looks)](images[indices])
    return replace(dataset, train=replace(dataset.train, inputs=seen))
