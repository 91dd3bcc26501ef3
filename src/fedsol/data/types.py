"""What the rest of fedsol knows about data: two splits of tensors and how to turn them into batches."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Split:
    """Inputs and labels of one split, in memory (or memory-mapped).

    `inputs` is uint8 of shape (N, C, H, W) for images; float32 of shape (N, …) is used as it is.
    `labels` is int64 of shape (N,). `clients` (int64, shape (N,)) is set when the data says whose each
    sample is.
    """

    inputs: Tensor
    labels: Tensor
    clients: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Augmentation:
    """The training transform: pad and crop, flip, then (after normalising) cutout."""

    pad: int = 0
    pad_mode: Literal["zero", "reflect"] = "zero"
    flip: bool = False
    cutout: int = 0


@dataclass(frozen=True)
class Dataset:
    """A training and a test split with everything a model and a batch need to know about them."""

    name: str
    train: Split
    test: Split
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation = Augmentation()
    channels: int = 3
    """Channels a model sees: grey images are repeated to three for the paper's models."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input as a model sees it."""
        shape = tuple(self.train.inputs.shape[1:])
        return (self.channels, *shape[1:]) if self.train.inputs.dtype == torch.uint8 else shape
