"""From a user's samples to a Dataset: labels numbered, images laid out, and everything checked once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsol.data.arrays import Array, channel_statistics
from fedsol.data.samples import Samples
from fedsol.data.types import Augmentation, Dataset, Split
from fedsol.errors import InputError

IMAGE_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Presentation:
    """How a user wants own images to be shown to a model; what is None is taken from the images."""

    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    channels: int | None = None
    augmentation: Augmentation | None = None


def build_dataset(name: str, train: Samples, test: Samples, shown: Presentation, source: str) -> Dataset:
    """A Dataset of a user's samples.

    Labels become 0 … classes - 1 in the sorted order of the training labels, and the training samples'
    clients 0 … clients - 1 likewise.
    """
    values = np.unique(train.labels)
    train_split = Split(inputs_of(train, source), _numbered(train.labels, values, source), _clients(train.clients))
    test_split = Split(inputs_of(test, source), _numbered(test.labels, values, source))
    _require_same_shape(train_split.inputs, test_split.inputs, source)
    make = _image_dataset if train_split.inputs.dtype == torch.uint8 else _feature_dataset
    return make(name, train_split, test_split, len(values), shown, source)


def check_dataset(dataset: Dataset, source: str) -> Dataset:
    """A Dataset that a user made, if it keeps what `fedsol.data.types` promises."""
    for part, split in (("train", dataset.train), ("test", dataset.test)):
        inputs, labels = split.inputs, split.labels
        if not (inputs.dtype == torch.float32 or (inputs.dtype == torch.uint8 and inputs.ndim == 4)):
            raise InputError(
                f"{source}: {part}.inputs is {inputs.dtype} of shape {tuple(inputs.shape)}; "
                "it must be uint8 (N, C, H, W) or float32 (N, …)"
            )
        if labels.dtype != torch.int64 or labels.shape != inputs.shape[:1] or len(labels) == 0:
            raise InputError(
                f"{source}: {part}.labels is {labels.dtype} of shape {tuple(labels.shape)}; "
                f"it must be int64 of shape ({len(inputs)},), and not empty"
            )
        if labels.min() < 0 or labels.max() >= dataset.classes:
            raise InputError(
                f"{source}: {part}.labels must be 0 to {dataset.classes - 1} (classes is {dataset.classes})"
            )
        if split.clients is not None and split.clients.shape != labels.shape:
            raise InputError(f"{source}: {part}.clients must have shape {tuple(labels.shape)}")
    _require_same_shape(dataset.train.inputs, dataset.test.inputs, source)
    if dataset.train.inputs.dtype == torch.uint8:
        _check_presentation(dataset, source)
    return dataset


def check_private(dataset: Dataset) -> Dataset:
    """A Dataset of which one split or both are elsewhere, if the images of it can be shown as it says."""
    if dataset.train.inputs.dtype == torch.uint8:
        _check_presentation(dataset, "data.private")
    return dataset


def inputs_of(samples: Samples, source: str) -> Tensor:
    """A user's inputs as fedsol keeps them: uint8 images (N, C, H, W), or float32 features."""
    array = samples.inputs
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise InputError(f"{source}: inputs hold values that are not finite (nan or inf)")
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    if array.dtype == np.uint8:
        images = array.astype(np.uint8, copy=False)
        if not samples.channels_first:
            images = _channels_first(images, source)
        return torch.from_numpy(np.ascontiguousarray(images))
    raise InputError(f"{source}: inputs are {array.dtype}; they must be uint8 (images) or floats (features)")


def _channels_first(images: NDArray[np.uint8], source: str) -> NDArray[np.uint8]:
    """Images (N, H, W), (N, H, W, C) or (N, C, H, W) as (N, C, H, W)."""
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4:
        first, last = images.shape[1] in IMAGE_CHANNELS, images.shape[3] in IMAGE_CHANNELS
        if first and not last:
            return images
        if last and not first:
            return images.transpose(0, 3, 1, 2)
    raise InputError(
        f"{source}: uint8 inputs of shape {images.shape} are not images "
        f"(N, H, W), (N, H, W, C) or (N, C, H, W) with {', '.join(map(str, IMAGE_CHANNELS))} channels; "
        "features must be floats"
    )


def _numbered(labels: Array, values: Array, source: str) -> Tensor:
    if (labels.dtype.kind in "US") != (values.dtype.kind in "US"):
        raise InputError(f"{source}: training and test labels must both be integers or both be strings")
    unknown = np.setdiff1d(labels, values)
    if len(unknown):
        raise InputError(f"{source}: the test label {unknown[0]!s} does not occur among the training labels")
    return torch.from_numpy(np.searchsorted(values, labels).astype(np.int64))


def _clients(clients: Array | None) -> Tensor | None:
    if clients is None:
        return None
    return torch.from_numpy(np.unique(clients, return_inverse=True)[1].reshape(-1).astype(np.int64))


def _require_same_shape(train: Tensor, test: Tensor, source: str) -> None:
    if train.dtype != test.dtype or train.shape[1:] != test.shape[1:]:
        raise InputError(
            f"{source}: training inputs are {train.dtype} {tuple(train.shape[1:])}, "
            f"test inputs {test.dtype} {tuple(test.shape[1:])}; they must be alike"
        )


def _feature_dataset(name: str, train: Split, test: Split, classes: int, shown: Presentation, source: str) -> Dataset:
    """Floats go to the model as they are, so nothing can be asked about how they are shown."""
    for field in ("mean", "std", "channels", "augmentation"):
        if getattr(shown, field) is not None:
            raise InputError(f"{field}: cannot be set for {source}, whose inputs are floats and used as they are")
    channels = train.inputs.shape[1] if train.inputs.ndim == 4 else 1
    return Dataset(name, train, test, classes, mean=(0.0,), std=(1.0,), channels=channels)


def _image_dataset(name: str, train: Split, test: Split, classes: int, shown: Presentation, source: str) -> Dataset:
    mean, std = shown.mean, shown.std
    if mean is None or std is None:
        found = channel_statistics(train.inputs)
        mean, std = found[0] if mean is None else mean, found[1] if std is None else std
    dataset = Dataset(
        name=name,
        train=train,
        test=test,
        classes=classes,
        mean=tuple(mean),
        std=tuple(std),
        augmentation=shown.augmentation or Augmentation(),
        channels=train.inputs.shape[1] if shown.channels is None else shown.channels,
    )
    _check_presentation(dataset, source)
    return dataset


def _check_presentation(dataset: Dataset, source: str) -> None:
    """That mean, std, channels and augmentation fit the images."""
    stored = dataset.train.inputs.shape[1]
    for field, value in (("mean", dataset.mean), ("std", dataset.std)):
        if len(value) not in (1, stored):
            raise InputError(f"{field}: {value} has {len(value)} numbers; {source} has images of {stored} channels")
    if min(dataset.std) <= 0:
        raise InputError(f"std: {dataset.std} is not allowed; every number must be above 0")
    if dataset.channels != stored and (stored != 1 or dataset.channels < 1):
        raise InputError(f"channels: {dataset.channels} is not allowed for {source}, whose images have {stored}")
    check_augmentation(dataset.augmentation, dataset.train.inputs)


def check_augmentation(settings: Augmentation, images: Tensor) -> None:
    """That an augmentation fits images of this size."""
    height, width = images.shape[2:]
    if settings.pad_mode == "reflect" and settings.pad >= min(height, width):
        raise InputError(f"augmentation: a reflecting pad of {settings.pad} is too wide for images {height} x {width}")
    if min(settings.pad, settings.cutout) < 0:
        raise InputError(f"augmentation: pad {settings.pad} and cutout {settings.cutout} must be 0 or more")
