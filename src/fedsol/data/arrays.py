"""A user's arrays as samples, and samples as a Dataset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsol.data.checks import require_finite, require_same_form
from fedsol.data.mistakes import IMAGE_CHANNELS
from fedsol.data.readers import make_split, read_npz, stratified_test_mask
from fedsol.data.targets import check_targets, make_targets, named_targets, names_of
from fedsol.data.types import UNSCALED, Array, Dataset, DatasetSpec, ImageOptions, Inputs, Split, pick, tensors_of
from fedsol.errors import InputError

IMAGES_PER_BLOCK = 4096
OWN_NAMES = ("x_train", "y_train", "x_test", "y_test", "clients_train")
CLASS_NAMES = "class_names"
MEDMNIST_NAMES = tuple(f"{part}_{kind}" for part in ("train", "val", "test") for kind in ("images", "labels"))

Arrays = Mapping[str, Array | Mapping[str, Array]]
"""Arrays by name; the inputs may be several, by the model's names for them."""


@dataclass(frozen=True)
class Source:
    """Where samples come from, as errors call it; the task they are for; and the share that becomes the test set."""

    name: str
    kind: str = "classification"
    test_fraction: float | None = None


@dataclass(frozen=True)
class Samples:
    """One split: inputs as a Split has them, targets and client ids as the user has them."""

    inputs: Inputs
    targets: Array
    clients: Array | None = None

    def select(self, chosen: NDArray[np.bool_] | slice) -> "Samples":
        """Return only the samples of a mask or a slice."""
        clients = None if self.clients is None else self.clients[chosen]
        rows = chosen if isinstance(chosen, slice) else torch.from_numpy(chosen)
        return Samples(pick(self.inputs, rows), self.targets[chosen], clients)


def dataset_from_arrays(name: str, arrays: Arrays, source: Source) -> Dataset:
    """Return the Dataset of named arrays, among them the names of classes, labels or targets if they have any."""
    return build_dataset(name, samples_from_arrays(arrays, source), source, _class_names(arrays, source))


def _class_names(arrays: Arrays, source: Source) -> tuple[str, ...] | None:
    if CLASS_NAMES not in arrays:
        return None
    names = np.asarray(arrays[CLASS_NAMES])
    where = f"{source.name}: {CLASS_NAMES}"
    if names.ndim != 1 or names.dtype.kind != "U" or not len(names):
        raise InputError(f"{where} must be a list of names (got {names.dtype} of shape {names.shape})")
    values, counts = np.unique(names, return_counts=True)
    if counts.max() > 1:
        raise InputError(f"{where} must differ (got {str(values[counts.argmax()])!r} twice)")
    return tuple(names.tolist())


def samples_from_arrays(arrays: Arrays, source: Source) -> tuple[Samples, Samples]:
    """Return training and test samples from named arrays (`x_train` … or MedMNIST's `train_images` …)."""
    own = any(name in OWN_NAMES for name in arrays)
    unknown = sorted({*arrays} - {CLASS_NAMES, *(OWN_NAMES if own else MEDMNIST_NAMES)})
    if unknown or not arrays:
        problem = f"unknown array {unknown[0]!r}" if unknown else "has no arrays"
        allowed = f"{', '.join(OWN_NAMES)} or {', '.join(MEDMNIST_NAMES)}; and {CLASS_NAMES}"
        raise InputError(f"{source.name}: {problem}; allowed: {allowed}")
    if own:
        train, test = samples_of(arrays, "x_train", "y_train", source), samples_of(arrays, "x_test", "y_test", source)
    else:
        train, validation, test = (
            samples_of(arrays, f"{part}_images", f"{part}_labels", source) for part in ("train", "val", "test")
        )
        train = _joined(train, validation, source.name)
    return divided(train, test, source)


def divided(train: Samples | None, test: Samples | None, source: Source) -> tuple[Samples, Samples]:
    """Return training and test samples; if one of them is missing, the other is divided by `test_fraction`."""
    fraction = source.test_fraction
    if train is not None and test is not None:
        if fraction is not None:
            raise InputError(
                f"data.test_fraction: must not be set, as {source.name} has its own test samples (got {fraction})"
            )
        return train, test
    only = train or test
    if only is None:
        raise InputError(f"{source.name}: has no samples")
    if fraction is None:
        missing = "test" if test is None else "training"
        raise InputError(
            f"{source.name}: has no {missing} samples; add them, or set data.test_fraction to split the others"
        )
    in_test = choose_test(only.targets, source.name, fraction)
    return only.select(~in_test), only.select(in_test)


def samples_of(arrays: Arrays, inputs: str, targets: str, source: Source) -> Samples | None:
    """Return the samples in the arrays of these names, checked; None if both are missing."""
    if inputs not in arrays and targets not in arrays:
        return None
    for name in (inputs, targets):
        if name not in arrays:
            raise InputError(f"{source.name}: has no array {name!r}; it has {', '.join(sorted(arrays))}")
    found = _inputs_of(arrays[inputs], f"{source.name}: {inputs}")
    values = {targets: check_targets(_plain(arrays, targets, source), source.kind, f"{source.name}: {targets}")}
    clients = "clients_train" if inputs == "x_train" and "clients_train" in arrays else None
    if clients:
        where = f"{source.name}: {clients}"
        values[clients] = check_targets(_plain(arrays, clients, source), "classification", where)
    count = len(next(iter(tensors_of(found).values())))
    for name, array in values.items():
        if len(array) != count:
            raise InputError(f"{source.name}: {inputs} has {count} samples but {name} has {len(array)}")
    return Samples(found, values[targets], values[clients] if clients else None)


def _plain(arrays: Arrays, name: str, source: Source) -> Array:
    array = arrays[name]
    if isinstance(array, Mapping):
        raise InputError(f"{source.name}: {name} must be one array (got a dict)")
    return array


def _inputs_of(found: Array | Mapping[str, Array], where: str) -> Inputs:
    if not isinstance(found, Mapping):
        return to_tensor(found, where)
    inputs = {name: to_tensor(array, f"{where}[{name!r}]") for name, array in found.items()}
    if not inputs:
        raise InputError(f"{where}: has no arrays")
    lengths = {name: len(tensor) for name, tensor in inputs.items()}
    if len({*lengths.values()}) > 1:
        raise InputError(f"{where}: all arrays must have the same number of samples (got {lengths})")
    return inputs


def to_tensor(array: Array, where: str) -> Tensor:
    """Return a user's inputs as fedsol stores them: uint8 images (N, C, H, W), float32 features, int64 token ids."""
    if array.ndim < 2 or array.size == 0:
        raise InputError(f"{where} must have the shape (N, …) and not be empty (got {array.shape})")
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            features = np.ascontiguousarray(array, dtype=np.float32)
        require_finite(features, where)
        return torch.from_numpy(features)
    if array.dtype.kind in "iu" and array.dtype != np.uint8 and array.ndim == 2:
        if array.min() < 0:
            raise InputError(f"{where}: integers are token ids, 0, 1, 2 … (got {array.min()}); features must be floats")
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))
    if array.dtype != np.uint8:
        raise InputError(
            f"{where} must be uint8 (images), floats (features) or integers (N, T) (token ids) "
            f"(got {array.dtype} of shape {array.shape})"
        )
    if array.ndim == 3:
        return torch.from_numpy(np.ascontiguousarray(array[:, None]))
    first, last = (array.ndim == 4 and array.shape[axis] in IMAGE_CHANNELS for axis in (1, -1))
    if first == last:
        raise InputError(
            f"{where}: uint8 inputs must be images (N, H, W), (N, H, W, C) or (N, C, H, W) with 1, 3 or 4 channels "
            f"(got shape {array.shape}); features must be floats"
        )
    return torch.from_numpy(np.ascontiguousarray(array if first else array.transpose(0, 3, 1, 2)))


def read_medmnist(folder: Path, spec: DatasetSpec, _options: ImageOptions) -> Sequence[Split]:
    """Read a MedMNIST file; its training and validation images together are the training set."""
    path = folder / f"{spec.name}.npz"
    splits = []
    for samples in samples_from_arrays(read_npz(path), Source(str(path))):
        assert isinstance(samples.inputs, Tensor)
        splits.append(make_split(samples.inputs.numpy(), samples.targets, spec.classes, path))
    return splits


def _joined(train: Samples | None, validation: Samples | None, source: str) -> Samples | None:
    if train is None or validation is None:
        return train or validation
    first, second = train.inputs, validation.inputs
    require_same_form(first, second, source)
    assert isinstance(first, Tensor)
    assert isinstance(second, Tensor)
    return Samples(torch.cat([first, second]), np.concatenate([train.targets, validation.targets]))


def choose_test(targets: Array, source: str, fraction: float) -> NDArray[np.bool_]:
    """Return which samples become the test set, always the same ones: a share of each class, or of all target values.

    Samples with more than one target are chosen evenly by their place.
    """
    total = len(targets)
    count = round(fraction * total)
    if not 0 < count < total:
        raise InputError(
            f"data.test_fraction: must leave samples for both training and test, but {source} has only {total} "
            f"(got {fraction})"
        )
    by = targets.reshape(total) if targets.size == total else np.zeros(total)
    return stratified_test_mask(by, count)


def build_dataset(
    name: str, samples: tuple[Samples, Samples], source: Source, class_names: tuple[str, ...] | None = None
) -> Dataset:
    """Return a Dataset whose classes and clients are numbered in the sorted order of the training samples.

    With `class_names`, classes are numbers already; labels and real numbers have a name for each column.
    """
    train, test = samples
    if class_names is None:
        targets = make_targets(train.targets, test.targets, source.kind, source.name)
    else:
        targets = named_targets((train.targets, test.targets), class_names, source.kind, source.name)
    owners, clients = number_clients(train.clients)
    require_same_form(train.inputs, test.inputs, source.name)
    size = targets.size
    if source.kind == "next-token":  # a token may occur in the inputs alone
        size = max(size, *(int(tensor.max()) + 1 for part in samples for tensor in tensors_of(part.inputs).values()))
        if targets.names and size > len(targets.names):
            raise InputError(f"{source.name}: tokens must be 0 to {len(targets.names) - 1} (got {size - 1})")
    inputs = train.inputs
    is_image = isinstance(inputs, Tensor) and inputs.dtype == torch.uint8
    mean, std = channel_statistics(cast(Tensor, inputs)) if is_image else UNSCALED
    return Dataset(
        name,
        Split(inputs, targets.train, clients),
        Split(test.inputs, targets.test),
        size,
        mean,
        std,
        channels=inputs.shape[1] if isinstance(inputs, Tensor) and inputs.ndim == 4 else 1,
        class_names=targets.names,
        client_names=owners,
        target_mean=targets.mean,
        target_std=targets.std,
    )


def number_clients(clients: Array | None) -> tuple[tuple[str, ...], Tensor | None]:
    """Return the clients' names, and each sample's client by its number in their sorted order."""
    if clients is None:
        return (), None
    values, numbers = np.unique(clients, return_inverse=True)
    return names_of(values), torch.from_numpy(numbers.reshape(-1).astype(np.int64))


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel of uint8 images (N, C, H, W), with pixels scaled to 0 … 1.

    Pixels are counted block by block, so memory-mapped images are never in memory as a whole.
    """
    channels = images.shape[1]
    counts = torch.zeros(channels, 256, dtype=torch.float64)
    for block in torch.split(images, IMAGES_PER_BLOCK):
        for channel in range(channels):
            counts[channel] += torch.bincount(block[:, channel].flatten(), minlength=256)
    values = torch.arange(256, dtype=torch.float64) / 255
    shares = counts / counts.sum(dim=1, keepdim=True)
    mean = shares @ values
    std = (shares * (values - mean[:, None]) ** 2).sum(dim=1).sqrt()
    std = torch.where(std > 0, std, 1.0)  # a constant channel is only shifted
    return tuple(mean.tolist()), tuple(std.tolist())
