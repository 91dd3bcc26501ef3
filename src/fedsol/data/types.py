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
Inputs = Tensor | dict[str, Tensor]
"""One tensor, or named ones that a model takes as keywords; the first dimension is that of the samples."""
MASK = "attention_mask"
"""The named input that says which tokens of a sample are real (1) and which are padding (0)."""


def pick(inputs: Inputs, samples: Tensor | slice) -> Inputs:
    """Return the inputs of some samples."""
    if isinstance(inputs, Tensor):
        return inputs[samples]
    return {name: tensor[samples] for name, tensor in inputs.items()}


def tensors_of(inputs: Inputs) -> dict[str, Tensor]:
    """Return the tensors of inputs by name; a single one has no name."""
    return {"": inputs} if isinstance(inputs, Tensor) else inputs


UNSCALED = ((0.0,), (1.0,))
"""The mean and std of inputs that are used as they are."""

KNOWN_KEYS_ONLY = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Split:
    """Inputs and labels of one split, in memory (or memory-mapped).

    `inputs` is uint8 of shape (N, C, H, W) for images, float32 of shape (N, …) for features, int64 of shape (N, T) for
    tokens, or a dict of named tensors. `labels` depends on the task: int64 (N,) for classes, float32 (N, labels) of 0
    and 1 for several labels, float32 (N, numbers), standardized, for a regression, int64 (N, H, W) for a class per
    pixel, int64 (N, T) for the next token; -100 does not count. `clients` (int64, shape (N,)) is set if the data says
    which client each sample belongs to.
    """

    inputs: Inputs
    labels: Tensor
    clients: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, samples: Tensor | slice) -> "Split":
        """Return a split with only these samples."""
        clients = None if self.clients is None else self.clients[samples]
        return Split(pick(self.inputs, samples), self.labels[samples], clients)

    @property
    def images(self) -> Tensor | None:
        """The inputs, if they are images."""
        is_image = isinstance(self.inputs, Tensor) and self.inputs.dtype == torch.uint8
        return self.inputs if is_image and isinstance(self.inputs, Tensor) else None


@with_config(KNOWN_KEYS_ONLY)
@dataclass(frozen=True)
class Augmentation:
    """The training transform: pad and crop, flip, then (after normalizing) cutout."""

    pad: int = 0
    pad_mode: Literal["zero", "reflect"] = "zero"
    flip: bool = False
    cutout: int = 0


@with_config(KNOWN_KEYS_ONLY)
@dataclass(frozen=True)
class Number:
    """A column of numbers: `fill` replaces missing values (None: they are refused), then mean and std scale it."""

    name: str
    mean: float = 0.0
    std: float = 1.0
    fill: float | None = None


@with_config(KNOWN_KEYS_ONLY)
@dataclass(frozen=True)
class Category:
    """A column of categories: code i + 1 is `values[i]`, and code 0 is every value that the training set lacks."""

    name: str
    values: tuple[str, ...]


@with_config(KNOWN_KEYS_ONLY)
@dataclass(frozen=True)
class Columns:
    """How the columns of a table become inputs: learned from the training split, and the same for every new row."""

    numbers: tuple[Number, ...] = ()
    categories: tuple[Category, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """A training and a test split, and how a model sees them."""

    name: str
    train: Split
    test: Split
    classes: int
    mean: tuple[float, ...]
    """Of each channel of images, with pixels scaled to 0 … 1; of floats, 0 unless `data.standardize` is set."""
    std: tuple[float, ...]
    augmentation: Augmentation = Augmentation()
    channels: int = 3
    """Channels a model sees: grayscale images are repeated to three for the paper's models."""
    class_names: tuple[str, ...] = ()
    """Names of the classes, labels or targets; empty if they are the numbers 0, 1, 2 …"""
    client_names: tuple[str, ...] = ()
    """Names of the clients that the data brings; empty if they are the numbers 0, 1, 2 …"""
    columns: Columns | None = None
    """How a table's columns became inputs."""
    target_mean: tuple[float, ...] = ()
    target_std: tuple[float, ...] = ()
    """Regression: `label * target_std + target_mean` is the target as the data has it."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Return the shape of one input as a model sees it; () for named inputs."""
        if not isinstance(self.train.inputs, Tensor):
            return ()
        shape = tuple(self.train.inputs.shape[1:])
        return shape if self.train.images is None else (self.channels, *shape[1:])

    @property
    def vocabulary(self) -> int | None:
        """The number of different tokens, if the inputs are tokens."""
        parts = [tensors_of(split.inputs) for split in (self.train, self.test) if len(split)]
        tokens = [part[name] for part in parts for name in ("", "input_ids") if name in part]
        tokens = [tensor for tensor in tokens if tensor.dtype == torch.int64]
        return max(int(tensor.max()) for tensor in tokens) + 1 if tokens else None

    @property
    def codes(self) -> tuple[int, ...]:
        """The number of codes of each categorical column of a table."""
        if self.columns is not None:
            return tuple(len(column.values) + 1 for column in self.columns.categories)
        parts = [tensors_of(split.inputs).get("categories") for split in (self.train, self.test) if len(split)]
        tables = [part for part in parts if part is not None and part.dtype == torch.int64 and part.ndim == 2]
        return tuple((torch.cat(tables).amax(dim=0) + 1).tolist()) if tables else ()


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
    class_names: tuple[str, ...] = ()
