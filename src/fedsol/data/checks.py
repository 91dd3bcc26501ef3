"""Checks of a dataset: its inputs and labels are what `fedsol.data.types` promises, and fit each other."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fedsol.data.types import UNSCALED, Array, Augmentation, Dataset, Inputs, Split, tensors_of
from fedsol.errors import InputError

IGNORED = -100
"""The label of a pixel or token that does not count."""


def require_finite(features: Array, where: str) -> None:
    """Raise `InputError` unless all values are finite."""
    finite = np.isfinite(cast(Any, features))
    if finite.all():
        return
    wrong = np.argwhere(~finite)
    samples = len(np.unique(wrong[:, 0]))
    raise InputError(
        f"{where} must be finite in 32 bits (got {len(wrong)} values that are nan or inf, in {samples} of "
        f"{len(features)} samples, the first at {tuple(wrong[0].tolist())})"
    )


def checked(dataset: Dataset, kind: str, source: str) -> Dataset:
    """Return a Dataset that a user made, if it is what `fedsol.data.types` promises for the kind of task."""
    for part, split in (("train", dataset.train), ("test", dataset.test)):
        where = f"{source}: {part}"
        for name, tensor in tensors_of(split.inputs).items():
            _check_input(tensor, f"{where}.inputs{f'[{name!r}]' if name else ''}", len(split.labels))
        _check_labels(split.labels, kind, dataset.classes, where)
        if split.clients is not None and split.clients.shape != split.labels.shape[:1]:
            raise InputError(f"{where}.clients must have shape {tuple(split.labels.shape[:1])}")
    require_same_form(dataset.train.inputs, dataset.test.inputs, source)
    check_images(dataset, source)
    # Its mean and std are those of images; `data.standardize` computes those of floats.
    return dataset if dataset.train.images is not None else replace(dataset, mean=UNSCALED[0], std=UNSCALED[1])


def _check_input(tensor: Tensor, where: str, samples: int) -> None:
    is_token = tensor.dtype == torch.int64 and tensor.ndim >= 2
    if not (tensor.dtype == torch.float32 or is_token or (tensor.dtype == torch.uint8 and tensor.ndim == 4)):
        raise InputError(
            f"{where} must be uint8 (N, C, H, W), float32 (N, …) or int64 (N, T) "
            f"(got {tensor.dtype} of shape {tuple(tensor.shape)})"
        )
    if len(tensor) != samples:
        raise InputError(f"{where} has {len(tensor)} samples but its labels have {samples}")
    if tensor.dtype == torch.float32:
        require_finite(tensor.numpy(), where)


LABELS = {
    "classification": (torch.int64, 1, "int64 of shape (N,)"),
    "multilabel": (torch.float32, 2, "float32 of shape (N, labels), zeros and ones"),
    "regression": (torch.float32, 2, "float32 of shape (N, targets)"),
    "segmentation": (torch.int64, 3, "int64 of shape (N, H, W)"),
    "next-token": (torch.int64, 2, "int64 of shape (N, T)"),
}
"""The labels of each kind of task: their type, dimensions, and both in words."""


def _check_labels(labels: Tensor, kind: str, classes: int, where: str) -> None:
    dtype, dimensions, rule = LABELS[kind]
    if labels.dtype != dtype or labels.ndim != dimensions or len(labels) == 0:
        raise InputError(
            f"{where}.labels must be {rule}, and not empty (got {labels.dtype} of shape {tuple(labels.shape)})"
        )
    if dtype == torch.float32:
        require_finite(labels.numpy(), f"{where}.labels")
        if labels.shape[1] != classes:
            raise InputError(f"{where}.labels must have {classes} columns, as its classes say (got {labels.shape[1]})")
        if kind == "multilabel" and not torch.isin(labels, torch.tensor([0.0, 1.0])).all():
            raise InputError(f"{where}.labels must be zeros and ones")
        return
    counted = labels if kind == "classification" else labels[labels != IGNORED]
    if len(counted) and (counted.min() < 0 or counted.max() >= classes):
        raise InputError(f"{where}.labels must be 0 to {classes - 1} (got {counted.min()} to {counted.max()})")


def require_same_form(first: Inputs, second: Inputs, source: str) -> None:
    """Raise `InputError` unless the inputs have the same names, types and shapes."""
    ours, theirs = tensors_of(first), tensors_of(second)
    if ours.keys() != theirs.keys():
        raise InputError(f"{source}: all inputs must have the same names (got {[*ours]} and {[*theirs]})")
    for name, tensor in ours.items():
        other = theirs[name]
        if tensor.dtype != other.dtype or tensor.shape[1:] != other.shape[1:]:
            raise InputError(
                f"{source}: all inputs must have the same type and shape "
                f"(got {tensor.dtype} {tuple(tensor.shape[1:])} and {other.dtype} {tuple(other.shape[1:])})"
            )


def require_label_places(split: Split, kind: str, source: str) -> None:
    """Raise `InputError` unless there is a label for each pixel or token of the inputs, where the task has such."""
    tensors = tensors_of(split.inputs)
    inputs = tensors.get("input_ids", tensors.get(""))
    if inputs is None or kind not in ("segmentation", "next-token"):
        return
    places = tuple(inputs.shape[2:] if kind == "segmentation" else inputs.shape[1:])
    if tuple(split.labels.shape[1:]) != places:
        raise InputError(
            f"{source}: labels must have shape (N, {', '.join(map(str, places))}), as the inputs have "
            f"(got {tuple(split.labels.shape)})"
        )


def check_images(dataset: Dataset, source: str) -> None:
    """Check that mean, std, channels and augmentation fit the images, if the dataset has images."""
    images = tensors_of(dataset.train.inputs).get("")
    if images is None or images.dtype != torch.uint8:
        return
    stored = images.shape[1]
    for field, value in (("mean", dataset.mean), ("std", dataset.std)):
        if len(value) not in (1, stored):
            raise InputError(f"{source}: {field} must have one number for each of {stored} channels (got {value})")
    if min(dataset.std) <= 0:
        raise InputError(f"{source}: std must be greater than 0 (got {dataset.std})")
    if dataset.channels != stored and (stored != 1 or dataset.channels < 1):
        raise InputError(f"{source}: channels must be {stored}, as in its images (got {dataset.channels})")
    check_augmentation(dataset.augmentation, images)


def check_augmentation(settings: Augmentation, images: Tensor) -> None:
    """Check that an augmentation fits images of this size."""
    smallest = min(images.shape[2:])
    if settings.pad_mode == "reflect" and settings.pad >= smallest:
        raise InputError(
            f"data.augmentation.pad: must be less than {smallest}, the shorter side of the images, to reflect them "
            f"(got {settings.pad})"
        )
    if min(settings.pad, settings.cutout) < 0:
        raise InputError(
            f"data.augmentation: pad and cutout must be 0 or more (got pad {settings.pad}, cutout {settings.cutout})"
        )
