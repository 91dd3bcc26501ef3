"""Data that only the nodes of a deployment have: what the server knows about it, and how a node reads its own."""

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedsol.config.tables import DataSettings, PrivateSettings, shown
from fedsol.core.memory import require_memory
from fedsol.core.paths import user_path
from fedsol.data.folders import CACHE_FOLDER, decode, list_images
from fedsol.data.mistakes import warn_of_mistakes
from fedsol.data.own import Samples, check_images, samples_of
from fedsol.data.readers import read_npz
from fedsol.data.types import Array, Dataset, ImageOptions, Split
from fedsol.errors import InputError


def private_dataset(settings: DataSettings) -> Dataset:
    """Return the data as the server sees it: no training samples, and its own test set if it has one."""
    _check_settings(settings)
    private = settings.private
    test = _empty(private) if private.test is None else _read(private.test, "test", settings)
    return _dataset(_empty(private), test, private)


def load_private(source: str, settings: DataSettings) -> Dataset:
    """Return the data as a node sees it: its own samples for training, and no test set."""
    _check_settings(settings)
    dataset = _dataset(_read(source, "train", settings), _empty(settings.private), settings.private)
    warn_of_mistakes(dataset, source)
    return dataset


def _check_settings(settings: DataSettings) -> None:
    private = settings.private
    if not private.shape:
        raise InputError("data.private.shape: is missing; set the shape of one input, such as [3, 32, 32]")
    if private.inputs == "images" and len(private.shape) != 3:
        raise InputError(f"data.private.shape: must be [channels, height, width] for images (got {private.shape})")
    require_memory(8 * math.prod(private.shape), f"data.private.shape: two inputs of shape {shown(private.shape)}")
    if not private.class_names and private.classes is None:
        raise InputError("data.private.classes: is missing; set it, or data.private.class_names")
    if private.class_names and private.classes not in (None, len(private.class_names)):
        count = len(private.class_names)
        raise InputError(f"data.private.classes: must be {count}, the number of class_names (got {private.classes})")
    if settings.part != 1:
        raise InputError(f"data.part: must be 1 with private data, as nodes use all of theirs (got {settings.part})")
    if settings.partition.clients is None:
        raise InputError("data.partition.clients: is missing; with private data it is the number of nodes")


def _dataset(train: Split, test: Split, private: PrivateSettings) -> Dataset:
    images = private.inputs == "images"
    dataset = Dataset(
        name="private",
        train=train,
        test=test,
        classes=private.classes or len(private.class_names),
        mean=tuple(private.mean) if images else (0.0,),
        std=tuple(private.std) if images else (1.0,),
        channels=private.shape[0] if images else 1,
    )
    check_images(dataset, "data.private")
    return dataset


def _empty(private: PrivateSettings) -> Split:
    dtype = torch.uint8 if private.inputs == "images" else torch.float32
    return Split(torch.zeros((0, *private.shape), dtype=dtype), torch.zeros(0, dtype=torch.int64))


def _read(source: str, part: str, settings: DataSettings) -> Split:
    """Read an `.npz` file (`x_train`, `y_train` or `x_test`, `y_test`) or a folder of images by class."""
    path, private = user_path(source), settings.private
    if path.is_dir():
        samples: Samples | None = _read_folder(path, part, settings)
    elif path.suffix == ".npz":
        samples = samples_of(read_npz(path), f"x_{part}", f"y_{part}", source)
    else:
        raise InputError(f"{source}: must be an existing folder of images or an .npz file")
    if samples is None:
        raise InputError(f"{source}: has no arrays x_{part} and y_{part}")
    inputs, expected = samples.inputs, _empty(private).inputs
    if inputs.shape[1:] != expected.shape[1:] or inputs.dtype != expected.dtype:
        raise InputError(
            f"{source}: inputs must be {expected.dtype} {tuple(expected.shape[1:])}, as in data.private "
            f"(got {inputs.dtype} {tuple(inputs.shape[1:])})"
        )
    return Split(inputs, _numbered(samples.labels, private, source))


def _read_folder(path: Path, part: str, settings: DataSettings) -> Samples:
    folder = path / part if (path / part).is_dir() else path
    files = list_images(folder, "class")
    channels = settings.private.shape[0] if settings.private.shape[0] in (1, 3) else None
    images = decode(files, folder, ImageOptions(settings.image_size, channels, path / CACHE_FOLDER))
    return Samples(torch.from_numpy(images), np.array([file.class_name for file in files]))


def _numbered(labels: Array, private: PrivateSettings, source: str) -> Tensor:
    """Return labels as numbers that mean the same on every node."""
    if labels.dtype.kind in "US":
        names = private.class_names
        unknown = sorted({*labels.astype(str).tolist()} - {*names})
        if unknown:
            raise InputError(f"{source}: the class {unknown[0]!r} is not in data.private.class_names {names}")
        return torch.tensor([names.index(name) for name in labels.astype(str).tolist()])
    classes = private.classes or len(private.class_names)
    if len(labels) and (labels.min() < 0 or labels.max() >= classes):
        raise InputError(f"{source}: labels must be 0 to {classes - 1} (got {labels.min()} to {labels.max()})")
    return torch.from_numpy(labels.astype(np.int64))
