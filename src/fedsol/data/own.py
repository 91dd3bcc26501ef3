"""A user's own data, without a change to fedsol: an `.npz` file, a folder of images, or a Python function."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedsol.core.imports import import_object
from fedsol.data.arrays import Array
from fedsol.data.building import Presentation, build_dataset, check_dataset
from fedsol.data.folders import CACHE_FOLDER, ImageFile, Layout, decode, list_images
from fedsol.data.readers import read_npz
from fedsol.data.samples import Samples, held_out, samples_from_arrays
from fedsol.data.types import Augmentation, Dataset
from fedsol.errors import InputError

FIELD = "data source"
LAYOUTS = ("class", "client/class")


def load_custom(
    source: str,
    *,
    name: str | None = None,
    layout: Layout = "class",
    image_size: int | None = None,
    test_fraction: float | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    channels: int | None = None,
    augmentation: Augmentation | None = None,
    cache: Path | str | None = None,
) -> Dataset:
    """Load a user's own data.

    `source` is one of

    - an `.npz` file with the arrays `x_train`, `y_train`, `x_test`, `y_test` and perhaps `clients_train`
      (whose each sample is), or MedMNIST's `train_images`, `train_labels`, `val_…`, `test_…`. Inputs are
      uint8 images (N, H, W), (N, H, W, C) or (N, C, H, W), or float features of any shape; labels and
      clients are integers or strings.
    - a folder with images `train/<class>/*` and `test/<class>/*`; with `layout="client/class"` the training
      images are `train/<client>/<class>/*`. They are decoded once and cached (in `cache`, by default
      `.fedsol-cache` in the folder). They must have one size, unless `image_size` asks for squares of that
      side.
    - `module:function` or `path/to/file.py:function`, called without arguments, that returns a
      `fedsol.data.types.Dataset` or a dict of the arrays above.

    Without test samples, `test_fraction` of each class is held out, always the same ones. `mean` and `std`
    of images (pixels scaled to 0 … 1) are those of the training images if not given. `channels` repeats grey
    images; `augmentation` is the training transform, by default none. Float features are used as they are.
    """
    shown = Presentation(mean, std, channels, augmentation)
    path = Path(source).expanduser()
    label = name or path.stem
    if path.is_dir():
        cache_folder = path / CACHE_FOLDER if cache is None else Path(cache)
        train, test = _read_folder(path, layout, image_size, test_fraction, channels, cache_folder)
        return build_dataset(label, train, test, shown, str(path))
    _folder_options_unset(source, layout, image_size)
    if path.suffix == ".npz":
        train, test = samples_from_arrays(read_npz(path), str(path), test_fraction)
        return build_dataset(label, train, test, shown, str(path))
    if ":" in source:
        return _call(source, name, test_fraction, shown)
    raise InputError(
        f"{FIELD}: {source!r} is not known; it must be a folder that exists, an .npz file, "
        "'module:function' or 'path/to/file.py:function'"
    )


def _folder_options_unset(source: str, layout: str, image_size: int | None) -> None:
    if layout != "class":
        raise InputError(f"layout: {layout!r} applies to folders of images only, and {source!r} is none")
    if image_size is not None:
        raise InputError(f"image_size: {image_size} applies to folders of images only, and {source!r} is none")


def _read_folder(
    folder: Path,
    layout: Layout,
    image_size: int | None,
    test_fraction: float | None,
    channels: int | None,
    cache: Path,
) -> tuple[Samples, Samples]:
    if layout not in LAYOUTS:
        raise InputError(f"layout: {layout!r} is not allowed; allowed are {', '.join(LAYOUTS)}")
    if image_size is not None and image_size < 1:
        raise InputError(f"image_size: {image_size} is not allowed; it must be at least 1")
    train, test = _folder_files(folder, layout, test_fraction)
    # Both in one array, so that they are all grey or all colour. Grey images to be shown in three channels
    # are stored in one: only asking for one channel converts.
    images = decode([*train, *test], folder, image_size, 1 if channels == 1 else None, cache)
    return _with_labels(images[: len(train)], train), _with_labels(images[len(train) :], test)


def _folder_files(folder: Path, layout: Layout, test_fraction: float | None) -> tuple[list[ImageFile], list[ImageFile]]:
    for part in ("train", "test"):
        if not (folder / part).is_dir() and (part == "train" or test_fraction is None):
            advice = "" if part == "train" else "; add it, or set test_fraction to split the training images"
            raise InputError(f"{folder}: has no folder {part!r}{advice}")
    train = list_images(folder / "train", layout)
    if (folder / "test").is_dir():
        if test_fraction is not None:
            raise InputError(f"test_fraction: {test_fraction} is not allowed: {folder} has a folder 'test'")
        return train, list_images(folder / "test", "class")
    in_test = held_out(np.array([file.class_name for file in train]), test_fraction or 0.0, str(folder))
    return (
        [file for file, chosen in zip(train, in_test, strict=True) if not chosen],
        [file for file, chosen in zip(train, in_test, strict=True) if chosen],
    )


def _with_labels(images: Array, files: Sequence[ImageFile]) -> Samples:
    clients = [file.client for file in files if file.client is not None]
    labels = np.array([file.class_name for file in files])
    return Samples(images, labels, np.array(clients) if clients else None, channels_first=True)


def _call(reference: str, name: str | None, test_fraction: float | None, shown: Presentation) -> Dataset:
    """The data that a user's function returns."""
    function = import_object(reference, FIELD)
    if not callable(function):
        raise InputError(f"{FIELD}: {reference!r} is a {type(function).__name__}, not a function")
    try:
        result = function()
    except InputError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise InputError(f"{FIELD}: {reference!r} raised {type(error).__name__}: {error}") from error
    if isinstance(result, Dataset):
        _options_unset(reference, test_fraction, shown)
        return check_dataset(result, reference)
    if not isinstance(result, Mapping):
        raise InputError(
            f"{FIELD}: {reference!r} returned a {type(result).__name__}; "
            "it must return a fedsol Dataset or a dict of arrays"
        )
    arrays = {str(key): np.asarray(value) for key, value in result.items()}
    train, test = samples_from_arrays(arrays, reference, test_fraction)
    return build_dataset(name or reference, train, test, shown, reference)


def _options_unset(reference: str, test_fraction: float | None, shown: Presentation) -> None:
    options = {"test_fraction": test_fraction, **vars(shown)}
    for field, value in options.items():
        if value is not None:
            raise InputError(f"{field}: cannot be set: {reference!r} returns a Dataset, which says all about itself")
