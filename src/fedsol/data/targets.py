"""Targets: what a model learns for each sample, as the data has it and as the tensors of each kind of task."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsol.data.checks import IGNORED
from fedsol.data.types import Array
from fedsol.errors import InputError


@dataclass(frozen=True)
class Targets:
    """The labels of both splits, the size of the model's output, and the names of classes, labels or targets."""

    train: Tensor
    test: Tensor
    size: int
    names: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    """Regression: the training targets' mean and standard deviation, by which all are standardized."""


def make_targets(train: Array, test: Array, kind: str, source: str) -> Targets:
    """Return targets as tensors; both arrays are as `check_targets` returns them.

    Classes (integers or strings) are numbered in the sorted order of the training samples.
    """
    if kind == "classification":
        values = np.unique(train)
        return Targets(_numbered(train, values, source), _numbered(test, values, source), len(values), names_of(values))
    if train.shape[1:] != test.shape[1:]:
        raise InputError(
            f"{source}: training and test targets must have the same shape (got {train.shape[1:]} and {test.shape[1:]})"
        )
    if kind == "multilabel":
        first, second = (torch.from_numpy(array.astype(np.float32)) for array in (train, test))
        return Targets(first, second, train.shape[1])
    if kind == "regression":
        return _standardized(train, test)
    largest = int(train.max() if kind == "segmentation" else max(train.max(), test.max()))
    if test.max() > largest:
        raise InputError(f"{source}: the test label {test.max()} does not occur among the training labels")
    lowest = min(int(array.min(where=array != IGNORED, initial=largest)) for array in (train, test))
    if kind == "segmentation" and lowest > 0:
        raise InputError(f"{source}: labels must be 0, 1, 2 … (got {lowest} to {largest}); subtract {lowest}")
    first, second = (torch.from_numpy(array.astype(np.int64)) for array in (train, test))
    return Targets(first, second, largest + 1)


def named_targets(splits: tuple[Array, Array], names: tuple[str, ...], kind: str, source: str) -> Targets:
    """Return the targets of training and test samples that have names.

    Classes are numbers already, 0 … len(names) - 1; labels and real numbers have a name for each column.
    """
    if kind in ("multilabel", "regression"):
        found = make_targets(*splits, kind, source)
        if len(names) != found.size:
            raise InputError(f"{source}: class_names must be {found.size}, one for each column (got {len(names)})")
        return replace(found, names=names)
    for array in splits:
        if array.dtype.kind in "US":
            raise InputError(f"{source}: class_names must not be given, as the labels are already names")
        counted = array if kind == "classification" else array[array != IGNORED]
        lowest, largest = (int(counted.min()), int(counted.max())) if counted.size else (0, 0)
        if lowest < 0 or largest >= len(names):
            raise InputError(f"{source}: labels must be 0 to {len(names) - 1} (got {lowest} to {largest})")
    first, second = (torch.from_numpy(array.astype(np.int64)) for array in splits)
    are_numbers = names == tuple(map(str, range(len(names))))
    return Targets(first, second, len(names), () if are_numbers else names)


def _standardized(train: Array, test: Array) -> Targets:
    values = train.astype(np.float64)
    mean, std = values.mean(axis=0), values.std(axis=0)
    std = np.where(std > 0, std, 1.0)  # a constant target is only shifted
    first, second = (torch.from_numpy(((array - mean) / std).astype(np.float32)) for array in (train, test))
    return Targets(first, second, values.shape[1], (), tuple(mean.tolist()), tuple(std.tolist()))


def _numbered(labels: Array, values: Array, source: str) -> Tensor:
    if (labels.dtype.kind in "US") != (values.dtype.kind in "US"):
        raise InputError(f"{source}: training and test labels must both be integers or both be strings")
    unknown = np.setdiff1d(labels, values)
    if len(unknown):
        raise InputError(f"{source}: the test label {unknown[0]!s} does not occur among the training labels")
    return torch.from_numpy(np.searchsorted(values, labels).astype(np.int64))


def names_of(values: Array) -> tuple[str, ...]:
    """Return the names of values that were numbered in this order; none if they are the numbers themselves."""
    if values.dtype.kind in "iu" and np.array_equal(values, np.arange(len(values))):
        return ()
    return tuple(
        value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in values.tolist()
    )


def check_targets(array: Array, kind: str, where: str) -> Array:
    """Return the targets of a split in the shape of their task, or raise `InputError`; `where` names the array.

    Classes are (N,), labels and real numbers (N, L), maps of classes (N, H, W), and next tokens (N, T).
    """
    return _CHECKS[kind](array, where)


def _classes(array: Array, where: str) -> Array:
    flat = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if flat.ndim != 1 or flat.dtype.kind not in "iubUS":
        hint = "; real numbers are for task.kind = 'regression'" if flat.ndim == 1 and flat.dtype.kind == "f" else ""
        raise InputError(
            f"{where} must be integers or strings of shape (N,) (got {array.dtype} of shape {array.shape}){hint}"
        )
    return flat


def _labels(array: Array, where: str) -> Array:
    if array.ndim != 2 or array.dtype.kind not in "iubf":
        raise InputError(f"{where} must be zeros and ones of shape (N, labels) (got {array.dtype} {array.shape})")
    _require(np.isin(array, (0, 1)), array, f"{where} must be zeros and ones")
    return array


def _numbers(array: Array, where: str) -> Array:
    column = array[:, None] if array.ndim == 1 else array
    if column.ndim != 2 or column.dtype.kind not in "iubf":
        raise InputError(f"{where} must be numbers of shape (N,) or (N, targets) (got {array.dtype} {array.shape})")
    _require(np.isfinite(column), column, f"{where} must be finite")
    return column


def _map(array: Array, where: str) -> Array:
    if array.ndim == 4 and 1 in (array.shape[1], array.shape[3]):
        array = array[:, 0] if array.shape[1] == 1 else array[..., 0]
    return _class_numbers(array, 3, f"{where} must be classes 0, 1, 2 … of shape (N, H, W)")


def _tokens(array: Array, where: str) -> Array:
    return _class_numbers(array, 2, f"{where} must be token ids 0, 1, 2 … of shape (N, T)")


def _class_numbers(array: Array, dimensions: int, rule: str) -> Array:
    if array.ndim != dimensions or array.dtype.kind not in "iub":
        raise InputError(f"{rule} (got {array.dtype} of shape {array.shape})")
    numbers = array.astype(np.int64)
    _require((numbers >= 0) | (numbers == IGNORED), numbers, f"{rule}, or {IGNORED} where there is none")
    return numbers


def _require(right: NDArray[np.bool_], array: Array, rule: str) -> None:
    if not right.all():
        place = tuple(np.argwhere(~right)[0].tolist())
        raise InputError(f"{rule} (got {array[place]!s} at {place if len(place) > 1 else place[0]})")


_CHECKS: dict[str, Callable[[Array, str], Array]] = {
    "classification": _classes,
    "multilabel": _labels,
    "regression": _numbers,
    "segmentation": _map,
    "next-token": _tokens,
}
