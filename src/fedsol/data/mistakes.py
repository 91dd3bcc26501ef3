"""Mistakes in a user's own data that raise no error but spoil the training: each is a warning with its remedy."""

import logging
from collections.abc import Iterator

import torch
from torch import Tensor

from fedsol.data.types import UNSCALED, Dataset, tensors_of

log = logging.getLogger(__name__)

IMAGE_CHANNELS = (1, 3, 4)
LOOKED_AT = 1000
"""Training samples that are looked at, evenly spaced."""
LARGE_FEATURE = 20.0
"""Root mean square of a feature that was surely not scaled; scaled ones have 1."""


def warn_of_mistakes(dataset: Dataset, source: str) -> None:
    """Log a warning for every likely mistake in the training samples."""
    if len(dataset.train):
        chosen = torch.linspace(0, len(dataset.train) - 1, min(len(dataset.train), LOOKED_AT)).long()
        labels = dataset.train.labels
        for name, tensor in tensors_of(dataset.train.inputs).items():
            mistakes = [*find_mistakes(tensor[chosen], labels)]
            if (dataset.mean, dataset.std) == UNSCALED:
                mistakes += find_unscaled(tensor[chosen], is_only=not name)
            for mistake in mistakes:
                log.warning("%s: %s%s", source, f"{name}: " if name else "", mistake)


def find_mistakes(inputs: Tensor, labels: Tensor) -> Iterator[str]:
    """Yield the likely mistakes in training samples: the array, what is odd about it, and the remedy."""
    if float(labels.min()) == float(labels.max()):
        yield "y_train: every sample has the same label, so there is nothing to learn; check the labels"
    if labels.ndim == 3 and 2 * len(classes := _occurring(labels)) <= int(labels.max()):
        yield (
            f"y_train: only {len(classes)} of {int(labels.max()) + 1} classes occur ({_shortened(classes)}), and the "
            "model has an output for each; number them 0, 1, 2 …, or -100 where there is none"
        )
    if inputs.dtype == torch.uint8:
        if int(inputs.max()) <= 1:
            yield (
                "x_train: the images have only the values 0 and 1, and uint8 pixels are 0 to 255; multiply by 255, or "
                "store images scaled to 0 … 1 as floats"
            )
        return
    if inputs.dtype != torch.float32 or inputs.numel() == 0:
        return
    shape = tuple(inputs.shape[1:])
    if len(shape) == 3 and shape[2] in IMAGE_CHANNELS and shape[0] not in IMAGE_CHANNELS:
        yield (
            f"x_train: float inputs of shape {shape} look like images with channels last, but are read as {shape[0]} "
            f"channels of {shape[1]} x {shape[2]} pixels; move the channels: x.transpose(0, 3, 1, 2)"
        )


def find_unscaled(inputs: Tensor, is_only: bool) -> Iterator[str]:
    """Yield that a feature is far from standardized, if one is; `is_only` says that `data.standardize` can do that."""
    if inputs.dtype != torch.float32 or inputs.numel() == 0:
        return
    size = inputs.flatten(1).double().square().mean(dim=0).sqrt()
    if float(size.max()) > LARGE_FEATURE:
        place = int(size.argmax())
        values = inputs.flatten(1)[:, place]
        remedy = "subtract the mean of the training samples and divide by their standard deviation"
        yield (
            f"x_train: the features are not scaled: feature {place} is {float(values.min()):g} to "
            f"{float(values.max()):g}; {'set data.standardize = true' if is_only else remedy}"
        )


def _occurring(labels: Tensor) -> list[int]:
    classes: list[int] = torch.bincount(labels[labels >= 0]).nonzero()[:, 0].tolist()
    return classes


def _shortened(classes: list[int]) -> str:
    return ", ".join(map(str, classes[:5])) + (" …" if len(classes) > 5 else "")
