"""Datasets as values: splits of tensors, and what is known about a dataset before any of it is read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
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


@dataclass(frozen=True)
class Member:
    """A file inside an extracted archive: its exact size, and its checksum where the publisher's is known."""

    path: str
    size: int
    checksum: str | None = None


@dataclass(frozen=True)
class RemoteFile:
    """A file as its publisher offers it.

    `urls` are tried in order. `checksum` is `md5:…` or `sha256:…`. An archive also names the folder it
    `extracts_to`, the files (`members`) and folders that must then be in it, and what in it is `unused`.
    """

    name: str
    urls: tuple[str, ...]
    checksum: str
    extracts_to: str = ""
    members: tuple[Member, ...] = ()
    folders: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadOptions:
    """The side that images are resized to (None: not at all), and where decoded images are cached."""

    image_size: int | None
    cache: Path


Reader = Callable[[Path, "DatasetSpec", ReadOptions], tuple[Split, Split]]
"""Reads the files in a dataset's folder into its training and test splits."""


@dataclass(frozen=True)
class DatasetSpec:
    """One row of the table of datasets.

    `shape` is that of a stored image, (channels, height, width), and `channels` what a model sees (grey
    images are repeated). `clients`, `fraction` and `rounds` are the settings of the FedSOL paper's
    experiments. `image_size`, where set, is the default side of the square that images of any size are made
    into. `folders` are those a user has to provide, and `by_hand` says what to put there.
    """

    name: str
    title: str
    classes: int
    train_size: int
    test_size: int
    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    reader: Reader
    clients: int
    fraction: float
    rounds: int
    augmentation: Augmentation = Augmentation()
    channels: int = 3
    files: tuple[RemoteFile, ...] = ()
    folders: tuple[str, ...] = ()
    by_hand: str = ""
    image_size: int | None = None
    exact_sizes: bool = True
