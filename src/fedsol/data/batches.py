"""The batches a client trains on and the batches a model is tested on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor

from fedsol.data.augmentation import augment, normalise
from fedsol.data.types import Dataset, Split
from fedsol.errors import InputError


@dataclass(frozen=True)
class Batch:
    """Float inputs as the model sees them, and their int64 labels."""

    inputs: Tensor
    labels: Tensor
    further: tuple["Batch", ...] = ()
    """The batches that follow it in the same step, for a method that draws several."""

    def __len__(self) -> int:
        return len(self.labels)


def batches(
    split: Split,
    indices: Tensor,
    dataset: Dataset,
    batch_size: int,
    epochs: int,
    generator: torch.Generator,
    device: torch.device | str = "cpu",
) -> Iterator[Batch]:
    """Training batches: the samples at `indices`, shuffled anew for each epoch, the last partial batch kept.

    The order and the augmentation come from `generator` alone (a CPU generator).
    """
    _require_batch_size(batch_size)
    for _ in range(epochs):
        order = indices[torch.randperm(len(indices), generator=generator)]
        for chosen in torch.split(order, batch_size):
            if len(chosen):
                inputs = _moved(split.inputs[chosen], device)
                yield Batch(augment(inputs, dataset, generator), _moved(split.labels[chosen], device))


def in_groups(stream: Iterator[Batch], count: int) -> Iterator[Batch]:
    """Batches for steps that take `count`: the first, with the others as its `further`; the last may have fewer."""
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
    """Batches in the stored order (or that of `indices`), normalised only."""
    _require_batch_size(batch_size)
    count = len(split) if indices is None else len(indices)
    for start in range(0, count, batch_size):
        stop = min(start + batch_size, count)
        chosen = slice(start, stop) if indices is None else indices[start:stop]
        inputs = normalise(_moved(split.inputs[chosen], device), dataset)
        yield Batch(inputs, _moved(split.labels[chosen], device))


def _moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on a device; to a GPU by way of pinned memory, so that the copy runs beside the computation."""
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def _require_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise InputError(f"batch_size: {batch_size} is not allowed; it must be at least 1")
