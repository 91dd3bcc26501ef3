"""Datasets as values: splits of tensors, and what is known about a dataset before any of it is read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, with_config
from torch import Tensor

Array = NDArray[np.generic]
KNOWN_KEYS_ONLY = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Split:
    """Inputs and labels of one split, in memory (or memory-mapped).

    `inputs` is uint8 of shape (N, C, H, W) for images; float32 of shape (N, …) is used as is. `labels` is int64 of
    shape (N,). `clients` (int64, shape (N,)) is set if the data says which client each sample belongs to.
    """

    inputs: Tensor
    labels: Tensor
    clients: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, samples: Tensor | slice) -> "Split":
        """Return a split with only these samples."""
        clients = None if self.clients is None else self.clients[samples]
        return Split(self.inputs[samples], self.labels[samples], clients)


@with_config(KNOWN_KEYS_ONLY)
@dataclass(frozen=True)
class Augmentation:
    """The training transform: pad and crop, flip, then (after normalizing) cutout."""

    pad: int = 0
    pad_mode: Literal["zero", "reflect"] = "zero"
    flip: bool = False
    cutout: int = 0


@dataclass(frozen=True)
class Dataset:
    """A training and a test split, and how a model sees them."""

    name: str
    train: Split
    test: Split
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation = Augmentation()
    channels: int = 3
    """Channels a model sees: grayscale images are repeated to three for the paper's models."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Return the shape of one input as a model sees it."""
        shape = tuple(self.train.inputs.shape[1:])
        return (self.channels, *shape[1:]) if self.train.inputs.dtype == torch.uint8 else shape


@with_config(KNOWN_KEYS_ONLY)
@dataclass(frozen=True)
class Member:
    """A file in an extracted archive: its exact size, and its checksum if the publisher's is known."""

    path: str
    size: int
    checksum: str | None = None


@with_config(KNOWN_KEYS_ONLY)
@dataclass(frozen=True)
class RemoteFile:
    """A file as its publisher offers it.

    `urls` are tried in order. `checksum` is `md5:…` or `sha256:…`. An archive also names the folder it `extracts_to`,
    the files (`members`) and folders that must then be in it, and the entries that are `unused`.
    """

    name: str
    urls: tuple[str, ...]
    checksum: str
    extracts_to: str = ""
    members: tuple[Member, ...] = ()
    folders: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageOptions:
    """How image files are decoded, and the folder that caches the result.

    `image_size` resizes the shorter side and crops the center to a square; None leaves the images unchanged, which
    must then all have the same size. `channels` 1 or 3 converts; None gives 1 if all images are grayscale, else 3.
    """

    image_size: int | None
    channels: int | None
    cache: Path


Reader = Callable[[Path, "DatasetSpec", ImageOptions], Sequence[Split]]
"""Reads the files in a dataset's folder into its training and test splits."""


@with_config(KNOWN_KEYS_ONLY)
@dataclass(frozen=True)
class DatasetSpec:
    """One table of `datasets.toml`.

    `shape` is that of a stored image, (channels, height, width); `channels` is what a model sees. `clients`, `fraction`
    and `rounds` are the settings of the FedSOL paper's experiments. `image_size` is the default size of datasets whose
    images are resized. `folders` are those that a user has to provide; `by_hand` says what to put there.
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
    clients: int = 100
    fraction: float = 0.1
    rounds: int = 300
    augmentation: Augmentation = Augmentation()
    channels: int = 3
    files: tuple[RemoteFile, ...] = ()
    folders: tuple[str, ...] = ()
    by_hand: str = ""
    image_size: int | None = None
    exact_sizes: bool = True
