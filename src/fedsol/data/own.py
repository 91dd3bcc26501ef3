"""A user's own data, without changing fedsol: an `.npz` file, an image folder, or a Python function."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsol.config.tables import DataSettings
from fedsol.core.imports import import_object
from fedsol.core.paths import user_path
from fedsol.core.user_code import describe_user_error
from fedsol.data.folders import CACHE_FOLDER, ImageFile, decode, list_images
from fedsol.data.mistakes import IMAGE_CHANNELS, warn_of_mistakes
from fedsol.data.readers import make_split, read_npz, stratified_test_mask
from fedsol.data.types import Array, Augmentation, Dataset, DatasetSpec, ImageOptions, Split
from fedsol.errors import InputError

IMAGES_PER_BLOCK = 4096
OWN_NAMES = ("x_train", "y_train", "x_test", "y_test", "clients_train")
MEDMNIST_NAMES = tuple(f"{part}_{kind}" for part in ("train", "val", "test") for kind in ("images", "labels"))


@dataclass(frozen=True)
class Samples:
    """One split: uint8 images (N, C, H, W) or float32 features, with labels and client ids as the user has them."""

    inputs: Tensor
    labels: Array
    clients: Array | None = None


def load_own(settings: DataSettings) -> Dataset:
    """Load the data that `settings.name` refers to. It is one of these.

    - an `.npz` file with the arrays `x_train`, `y_train`, `x_test`, `y_test` and optionally `clients_train` (the
      client that each sample belongs to), or MedMNIST's `train_images`, `train_labels`, `val_…`, `test_…`. Inputs are
      uint8 images (N, H, W), (N, H, W, C) or (N, C, H, W), or float features of any shape; labels and clients are
      integers or strings.
    - a folder with images `train/<class>/*` and `test/<class>/*`; with the layout `client/class` the training images
      are `train/<client>/<class>/*`. They must all have the same size unless `image_size` is set.
    - `module:function` or `path/to/file.py:function`, called without arguments, that returns a `fedsol.Dataset` or a
      dict of the arrays above.

    Without test samples, `test_fraction` of each class becomes the test set, always the same samples. Labels and
    clients are numbered in sorted order. Images are normalized by the statistics of the training images.
    """
    dataset = _load(settings)
    warn_of_mistakes(dataset, settings.name)
    return dataset


def _load(settings: DataSettings) -> Dataset:
    source = settings.name
    path = user_path(source, "data.name")
    if path.is_dir():
        return _build(path.stem, _read_folder(path, settings), str(path))
    for field in ("layout", "image_size"):
        if getattr(settings, field) != DataSettings.model_fields[field].default:
            raise InputError(f"data.{field}: only applies to image folders, and {source!r} is not a folder")
    if path.suffix == ".npz":
        return _build(path.stem, samples_from_arrays(read_npz(path), str(path), settings.test_fraction), str(path))
    if ":" in source:
        return _call(source, settings.test_fraction)
    raise InputError(
        f"data.name: must be a dataset's name, an existing folder, an .npz file, 'module:function' or "
        f"'path/to/file.py:function' (got {source!r})"
    )


def _read_folder(folder: Path, settings: DataSettings) -> tuple[Samples, Samples]:
    train, test = _folder_files(folder, settings)
    # Both in one array, so that all are grayscale or all are color. Grayscale images are stored in one channel even if
    # a model sees three; color images are only converted if one channel is asked for.
    channels = 1 if settings.channels == 1 else None
    cache = folder / CACHE_FOLDER if settings.cache is None else Path(settings.cache)
    images = torch.from_numpy(decode([*train, *test], folder, ImageOptions(settings.image_size, channels, cache)))
    return _labeled(images[: len(train)], train), _labeled(images[len(train) :], test)


def _folder_files(folder: Path, settings: DataSettings) -> tuple[list[ImageFile], list[ImageFile]]:
    fraction = settings.test_fraction
    if not (folder / "train").is_dir():
        raise InputError(f"{folder}: has no folder 'train'")
    train = list_images(folder / "train", settings.layout)
    if (folder / "test").is_dir():
        if fraction is not None:
            raise InputError(f"data.test_fraction: must not be set, as {folder} has a folder 'test' (got {fraction})")
        return train, list_images(folder / "test", "class")
    if fraction is None:
        raise InputError(f"{folder}: has no folder 'test'; add it, or set data.test_fraction to split the others")
    in_test = _test_mask(np.array([file.class_name for file in train]), fraction, str(folder))
    train_files = [file for file, chosen in zip(train, in_test, strict=True) if not chosen]
    return train_files, [file for file, chosen in zip(train, in_test, strict=True) if chosen]


def _labeled(images: Tensor, files: Sequence[ImageFile]) -> Samples:
    clients = [file.client for file in files if file.client is not None]
    return Samples(images, np.array([file.class_name for file in files]), np.array(clients) if clients else None)


def _call(reference: str, test_fraction: float | None) -> Dataset:
    """Return the data that a user's function returns."""
    function = import_object(reference, "data.name")
    if not callable(function):
        raise InputError(f"data.name: {reference!r} must be a function (got a {type(function).__name__})")
    try:
        result = function()
    except InputError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise InputError(f"data.name: {reference!r} raised {describe_user_error(error)}") from error
    if isinstance(result, Dataset):
        if test_fraction is not None:
            raise InputError(f"data.test_fraction: must not be set, as {reference!r} returns a Dataset with a test set")
        return _checked(result, reference)
    if not isinstance(result, Mapping):
        kind = type(result).__name__
        raise InputError(f"data.name: {reference!r} must return a fedsol.Dataset or a dict of arrays (got a {kind})")
    arrays = {str(key): _as_array(value, f"data.name: {reference!r}: {key}") for key, value in result.items()}
    return _build(reference, samples_from_arrays(arrays, reference, test_fraction), reference)


def _as_array(value: object, where: str) -> Array:
    """Return a value of the dict that a user's function returns as an array."""
    is_other = isinstance(value, Dataset | Split | torch.utils.data.Dataset | torch.utils.data.DataLoader | Mapping)
    try:
        array = None if is_other else np.asarray(value)
    except Exception as error:  # a user's object may raise anything
        raise InputError(f"{where}: cannot be made an array: {describe_user_error(error)}") from error
    if array is None or array.dtype == object:
        raise InputError(
            f"{where}: must be an array of numbers or strings (got a {type(value).__name__}); return a fedsol.Dataset, "
            f"or a dict of the arrays {', '.join(OWN_NAMES)}"
        )
    return array


def samples_from_arrays(
    arrays: Mapping[str, Array], source: str, test_fraction: float | None
) -> tuple[Samples, Samples]:
    """Return training and test samples from named arrays (`x_train` … or MedMNIST's `train_images` …)."""
    own = any(name in OWN_NAMES for name in arrays)
    unknown = sorted(set(arrays) - set(OWN_NAMES if own else MEDMNIST_NAMES))
    if unknown or not arrays:
        problem = f"unknown array {unknown[0]!r}" if unknown else "has no arrays"
        raise InputError(f"{source}: {problem}; allowed: {', '.join(OWN_NAMES)} or {', '.join(MEDMNIST_NAMES)}")
    if own:
        train, test = samples_of(arrays, "x_train", "y_train", source), samples_of(arrays, "x_test", "y_test", source)
    else:
        train, validation, test = (
            samples_of(arrays, f"{part}_images", f"{part}_labels", source) for part in ("train", "val", "test")
        )
        train = _joined(train, validation, source)
    if train is not None and test is not None:
        if test_fraction is not None:
            raise InputError(
                f"data.test_fraction: must not be set, as {source} has its own test samples (got {test_fraction})"
            )
        return train, test
    only = train or test
    if only is None:
        raise InputError(f"{source}: has no samples")
    if test_fraction is None:
        missing = "test" if test is None else "training"
        raise InputError(f"{source}: has no {missing} samples; add them, or set data.test_fraction to split the others")
    in_test = _test_mask(only.labels, test_fraction, source)
    return _selected(only, ~in_test), _selected(only, in_test)


def samples_of(arrays: Mapping[str, Array], inputs: str, labels: str, source: str) -> Samples | None:
    """Return the samples in the arrays of these names, checked; None if both are missing."""
    if inputs not in arrays and labels not in arrays:
        return None
    for name in (inputs, labels):
        if name not in arrays:
            raise InputError(f"{source}: has no array {name!r}; it has {', '.join(sorted(arrays))}")
    array = arrays[inputs]
    if array.ndim < 2 or array.size == 0:
        raise InputError(f"{source}: {inputs} must have the shape (N, …) and not be empty (got {array.shape})")
    clients = "clients_train" if inputs == "x_train" and "clients_train" in arrays else None
    values = {name: _values(arrays[name], name, source) for name in (labels, clients) if name}
    for name, found in values.items():
        if len(found) != len(array):
            raise InputError(f"{source}: {inputs} has {len(array)} samples but {name} has {len(found)}")
    return Samples(_to_tensor(array, f"{source}: {inputs}"), values[labels], values[clients] if clients else None)


def _values(array: Array, name: str, source: str) -> Array:
    """Return labels or clients, integers or strings, as (N,); (N, 1) is accepted."""
    flat = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if flat.ndim != 1 or flat.dtype.kind not in "iubUS":
        raise InputError(
            f"{source}: {name} must be integers or strings of shape (N,) (got {array.dtype} of shape {array.shape})"
        )
    return flat


def _to_tensor(array: Array, where: str) -> Tensor:
    """Return a user's inputs as fedsol stores them: uint8 images (N, C, H, W), or float32 features."""
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            features = np.ascontiguousarray(array, dtype=np.float32)
        _require_finite(features, where)
        return torch.from_numpy(features)
    if array.dtype != np.uint8:
        raise InputError(f"{where} must be uint8 (images) or floats (features) (got {array.dtype})")
    if array.ndim == 3:
        return torch.from_numpy(np.ascontiguousarray(array[:, None]))
    first, last = (array.ndim == 4 and array.shape[axis] in IMAGE_CHANNELS for axis in (1, -1))
    if first == last:
        raise InputError(
            f"{where}: uint8 inputs must be images (N, H, W), (N, H, W, C) or (N, C, H, W) with 1, 3 or 4 channels "
            f"(got shape {array.shape}); features must be floats"
        )
    return torch.from_numpy(np.ascontiguousarray(array if first else array.transpose(0, 3, 1, 2)))


def _require_finite(features: NDArray[np.float32], where: str) -> None:
    finite = np.isfinite(features)
    if finite.all():
        return
    wrong = np.argwhere(~finite)
    samples = len(np.unique(wrong[:, 0]))
    raise InputError(
        f"{where} must be finite in 32 bits (got {len(wrong)} values that are nan or inf, in {samples} of "
        f"{len(features)} samples, the first at {tuple(wrong[0].tolist())})"
    )


def read_medmnist(folder: Path, spec: DatasetSpec, _options: ImageOptions) -> Sequence[Split]:
    """Read a MedMNIST file; its training and validation images together are the training set."""
    path = folder / f"{spec.name}.npz"
    parts = samples_from_arrays(read_npz(path), str(path), test_fraction=None)
    return [make_split(samples.inputs.numpy(), samples.labels, spec.classes, path) for samples in parts]


def _joined(train: Samples | None, validation: Samples | None, source: str) -> Samples | None:
    if train is None or validation is None:
        return train or validation
    _require_same_shape(train.inputs, validation.inputs, source)
    return Samples(torch.cat([train.inputs, validation.inputs]), np.concatenate([train.labels, validation.labels]))


def _selected(samples: Samples, mask: NDArray[np.bool_]) -> Samples:
    clients = None if samples.clients is None else samples.clients[mask]
    return Samples(samples.inputs[torch.from_numpy(mask)], samples.labels[mask], clients)


def _test_mask(labels: Array, test_fraction: float, source: str) -> NDArray[np.bool_]:
    """Return which samples become the test set: `test_fraction` of each class, always the same ones."""
    count = round(test_fraction * len(labels))
    if not 0 < count < len(labels):
        raise InputError(
            f"data.test_fraction: must leave samples for both training and test, but {source} has only {len(labels)} "
            f"(got {test_fraction})"
        )
    return stratified_test_mask(labels, count)


def _build(name: str, samples: tuple[Samples, Samples], source: str) -> Dataset:
    """Return a Dataset whose labels and clients are numbered in the sorted order of the training samples."""
    train, test = samples
    values = np.unique(train.labels)
    clients = None if train.clients is None else np.unique(train.clients, return_inverse=True)[1].reshape(-1)
    train_split = Split(
        train.inputs,
        _numbered(train.labels, values, source),
        None if clients is None else torch.from_numpy(clients.astype(np.int64)),
    )
    test_split = Split(test.inputs, _numbered(test.labels, values, source))
    _require_same_shape(train.inputs, test.inputs, source)
    images = train.inputs.dtype == torch.uint8
    mean, std = channel_statistics(train.inputs) if images else ((0.0,), (1.0,))
    channels = train.inputs.shape[1] if train.inputs.ndim == 4 else 1
    return Dataset(name, train_split, test_split, len(values), mean, std, channels=channels)


def _numbered(labels: Array, values: Array, source: str) -> Tensor:
    if (labels.dtype.kind in "US") != (values.dtype.kind in "US"):
        raise InputError(f"{source}: training and test labels must both be integers or both be strings")
    unknown = np.setdiff1d(labels, values)
    if len(unknown):
        raise InputError(f"{source}: the test label {unknown[0]!s} does not occur among the training labels")
    return torch.from_numpy(np.searchsorted(values, labels).astype(np.int64))


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


def _checked(dataset: Dataset, source: str) -> Dataset:
    """Return a Dataset that a user made, if it is what `fedsol.data.types` promises."""
    for part, split in (("train", dataset.train), ("test", dataset.test)):
        inputs, labels = split.inputs, split.labels
        if not (inputs.dtype == torch.float32 or (inputs.dtype == torch.uint8 and inputs.ndim == 4)):
            raise InputError(
                f"{source}: {part}.inputs must be uint8 (N, C, H, W) or float32 (N, …) "
                f"(got {inputs.dtype} of shape {tuple(inputs.shape)})"
            )
        if inputs.dtype == torch.float32:
            _require_finite(inputs.numpy(), f"{source}: {part}.inputs")
        if labels.dtype != torch.int64 or labels.shape != inputs.shape[:1] or len(labels) == 0:
            raise InputError(
                f"{source}: {part}.labels must be int64 of shape ({len(inputs)},), and not empty "
                f"(got {labels.dtype} of shape {tuple(labels.shape)})"
            )
        if labels.min() < 0 or labels.max() >= dataset.classes:
            raise InputError(
                f"{source}: {part}.labels must be 0 to {dataset.classes - 1} (got {labels.min()} to {labels.max()})"
            )
        if split.clients is not None and split.clients.shape != labels.shape:
            raise InputError(f"{source}: {part}.clients must have shape {tuple(labels.shape)}")
    _require_same_shape(dataset.train.inputs, dataset.test.inputs, source)
    check_images(dataset, source)
    return dataset


def _require_same_shape(first: Tensor, second: Tensor, source: str) -> None:
    if first.dtype != second.dtype or first.shape[1:] != second.shape[1:]:
        raise InputError(
            f"{source}: all inputs must have the same type and shape "
            f"(got {first.dtype} {tuple(first.shape[1:])} and {second.dtype} {tuple(second.shape[1:])})"
        )


def check_images(dataset: Dataset, source: str) -> None:
    """Check that mean, std, channels and augmentation fit the images, if the dataset has images."""
    if dataset.train.inputs.dtype != torch.uint8:
        return
    stored = dataset.train.inputs.shape[1]
    for field, value in (("mean", dataset.mean), ("std", dataset.std)):
        if len(value) not in (1, stored):
            raise InputError(f"{source}: {field} must have one number for each of {stored} channels (got {value})")
    if min(dataset.std) <= 0:
        raise InputError(f"{source}: std must be greater than 0 (got {dataset.std})")
    if dataset.channels != stored and (stored != 1 or dataset.channels < 1):
        raise InputError(f"{source}: channels must be {stored}, as in its images (got {dataset.channels})")
    check_augmentation(dataset.augmentation, dataset.train.inputs)


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
