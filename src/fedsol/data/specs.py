"""What is known about a dataset before any of it is read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedsol.data.types import Augmentation, Split

NO_AUGMENTATION = Augmentation()


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
    augmentation: Augmentation = NO_AUGMENTATION
    channels: int = 3
    files: tuple[RemoteFile, ...] = ()
    folders: tuple[str, ...] = ()
    by_hand: str = ""
    image_size: int | None = None
    exact_sizes: bool = True
