"""A user's own data, without changing fedsol: arrays, tables, image folders, or what a Python function returns."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedsol.config.catalog import listing
from fedsol.config.tables import DataSettings
from fedsol.core.imports import import_object
from fedsol.core.paths import user_path
from fedsol.core.user_code import describe_user_error
from fedsol.data.arrays import OWN_NAMES, Samples, Source, build_dataset, choose_test, dataset_from_arrays
from fedsol.data.checks import checked, require_label_places
from fedsol.data.folders import CACHE_FOLDER, ImageFile, decode, list_images
from fedsol.data.frames import is_frame, is_table, read_frame
from fedsol.data.huggingface import PREFIX, hugging_face_dataset, is_hugging_face, is_saved, load_hugging_face
from fedsol.data.items import is_map_style, items_dataset
from fedsol.data.mistakes import warn_of_mistakes
from fedsol.data.readers import read_npz
from fedsol.data.standardize import standardized
from fedsol.data.tables import check_no_table, load_table, table_dataset
from fedsol.data.types import Array, Dataset, ImageOptions, Split
from fedsol.errors import InputError


def load_own(settings: DataSettings, kind: str = "classification") -> Dataset:
    """Load the data that `settings.name` refers to. It is one of these.

    - an `.npz` file with the arrays `x_train`, `y_train`, `x_test`, `y_test` and optionally `clients_train` (the
      client that each sample belongs to), or MedMNIST's `train_images`, `train_labels`, `val_…`, `test_…`. Inputs are
      uint8 images (N, H, W), (N, H, W, C) or (N, C, H, W), float features of any shape, or integers (N, T), the ids of
      tokens. Classes and clients are integers or strings; other targets are in the form of their task. `class_names`
      names classes that are numbers, or the columns of labels and real numbers.
    - a folder with images `train/<class>/*` and `test/<class>/*`; with the layout `client/class` the training images
      are `train/<client>/<class>/*`. With `test_fraction` and without a folder `train`, the classes (or clients) are
      at the top. Images must all have the same size unless `image_size` is set.
    - a table, `.csv` or `.parquet`, with the columns that `[data]` names.
    - `hf:` and the name of a Hugging Face dataset, or a folder that its `save_to_disk` wrote.
    - `module:function` or `path/to/file.py:function`, called without arguments, that returns a `fedsol.Dataset`, a dict
      of the arrays above, or a pandas DataFrame or map-style torch Dataset (or a dict `train`, `test` of two).

    Without test samples, `test_fraction` of each class becomes the test set, always the same samples. Labels and
    clients are numbered in sorted order. Images are normalized by the statistics of the training images, and floats are
    standardized by those of the training samples if `standardize` is set.
    """
    return _finished(_load(settings, kind), settings, kind, settings.name)


def given_dataset(data: object, settings: DataSettings, kind: str) -> Dataset:
    """Return the Dataset of data that a user has in memory."""
    if data is None:
        raise InputError(
            f"data.name: {settings.name!r} is data that was passed to fedsol.train; pass it again (data=…), or save it "
            "as a file and name that"
        )
    dataset = dataset_from(data, settings, Source("data", kind, settings.test_fraction))
    return _finished(dataset, settings, kind, "data")


def _finished(dataset: Dataset, settings: DataSettings, kind: str, source: str) -> Dataset:
    """Return the dataset, checked and standardized if asked, with a warning for every likely mistake."""
    require_label_places(dataset.train, kind, source)
    if settings.standardize:
        dataset = standardized(dataset, source)
    warn_of_mistakes(dataset, source)
    return dataset


def _load(settings: DataSettings, kind: str) -> Dataset:
    name = settings.name
    path = user_path(name, "data.name")
    source = Source(str(path), kind, settings.test_fraction)
    if name.startswith(PREFIX) or is_saved(path):
        return load_hugging_face(name, settings, kind)
    if path.is_dir():
        check_no_table(settings, f"{path} is a folder")
        if kind != "classification":
            raise InputError(
                f"task.kind: {kind!r} does not fit {path}, a folder with one class per image; allowed: classification"
            )
        return build_dataset(path.stem, _read_folder(path, settings), source)
    for field in ("layout", "image_size"):
        if getattr(settings, field) != DataSettings.model_fields[field].default:
            raise InputError(f"data.{field}: only applies to image folders, and {name!r} is not a folder")
    if is_table(path):
        return load_table(path, settings, source)
    if path.suffix == ".npz":
        check_no_table(settings, f"{path} has arrays")
        return dataset_from_arrays(path.stem, read_npz(path), source)
    if ":" in name:
        return dataset_from(_call(name), settings, Source(name, kind, settings.test_fraction))
    near = difflib.get_close_matches(name, [row["name"] for row in listing("datasets")], n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise InputError(
        f"data.name: must be a dataset's name{hint}, an existing folder, a .csv, .parquet or .npz file, 'hf:NAME' of a "
        f"Hugging Face dataset, 'module:function' or 'path/to/file.py:function' (got {name!r})"
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
    top = folder / "train"
    if not top.is_dir():
        if fraction is None:
            raise InputError(
                f"{folder}: has no folder 'train'; add it, or set data.test_fraction if the folders in it are those of "
                "the classes, to test on a share of them"
            )
        top = folder
    train = list_images(top, settings.layout)
    if top != folder and (folder / "test").is_dir():
        if fraction is not None:
            raise InputError(f"data.test_fraction: must not be set, as {folder} has a folder 'test' (got {fraction})")
        return train, list_images(folder / "test", "class")
    if fraction is None:
        raise InputError(f"{folder}: has no folder 'test'; add it, or set data.test_fraction to split the others")
    in_test = choose_test(np.array([file.class_name for file in train]), str(folder), fraction)
    train_files = [file for file, chosen in zip(train, in_test, strict=True) if not chosen]
    return train_files, [file for file, chosen in zip(train, in_test, strict=True) if chosen]


def _labeled(images: Tensor, files: Sequence[ImageFile]) -> Samples:
    clients = [file.client for file in files if file.client is not None]
    return Samples(images, np.array([file.class_name for file in files]), np.array(clients) if clients else None)


def _call(reference: str) -> object:
    """Return what a user's function returns."""
    function = import_object(reference, "data.name")
    if not callable(function):
        raise InputError(f"data.name: {reference!r} must be a function (got a {type(function).__name__})")
    try:
        return function()
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # a user's function may raise anything
        raise InputError(f"data.name: {reference!r} raised {describe_user_error(error)}") from error


def dataset_from(data: object, settings: DataSettings, source: Source) -> Dataset:
    """Return the Dataset that a user's object is or describes; a dict of `train` and `test` may have two of them."""
    is_pair = isinstance(data, Mapping) and "train" in data and {*data} <= {"train", "test"}
    train, test = (data["train"], data.get("test")) if isinstance(data, Mapping) and is_pair else (data, None)
    if is_hugging_face(train):
        return hugging_face_dataset(data, settings, source)
    if is_frame(train):
        if test is None and settings.test is not None:
            test = read_frame(user_path(settings.test, "data.test"), settings.separator)
        return table_dataset(train, test, settings, source)
    of_torch = (torch.utils.data.Dataset, torch.utils.data.DataLoader)
    if not isinstance(train, (Dataset, Mapping, *of_torch)):
        raise InputError(
            f"{source.name}: must be a fedsol.Dataset, a torch Dataset, a DataFrame or a dict of arrays "
            f"(got a {type(train).__name__})"
        )
    check_no_table(settings, f"{source.name!r} is none")
    if isinstance(train, Dataset):
        if source.test_fraction is not None:
            raise InputError(f"data.test_fraction: must not be set, as {source.name!r} has a test set")
        return checked(train, source.kind, source.name)
    if is_map_style(train):
        return items_dataset(train, test, source)
    if not isinstance(data, Mapping) or isinstance(train, of_torch):
        raise InputError(
            f"{source.name}: must be a map-style Dataset, with __getitem__ and __len__ (got a {type(train).__name__})"
        )
    arrays = {str(key): _as_arrays(value, f"data.name: {source.name!r}: {key}") for key, value in data.items()}
    return dataset_from_arrays(source.name, arrays, source)


def _as_arrays(value: object, where: str) -> Array | Mapping[str, Array]:
    """Return a value of the dict that a user's function returns as an array, or a dict of arrays as such."""
    if isinstance(value, Mapping):
        return {str(name): _as_array(item, f"{where}[{name!r}]") for name, item in value.items()}
    return _as_array(value, where)


def _as_array(value: object, where: str) -> Array:
    is_other = isinstance(value, Dataset | Split | torch.utils.data.Dataset | torch.utils.data.DataLoader | Mapping)
    try:
        array = None if is_other else np.asarray(value)
    except Exception as error:  # a user's object may raise anything
        raise InputError(f"{where}: cannot be converted to an array: {describe_user_error(error)}") from error
    if array is None or array.dtype == object:
        raise InputError(
            f"{where}: must be an array of numbers or strings (got a {type(value).__name__}); return a fedsol.Dataset, "
            f"or a dict of the arrays {', '.join(OWN_NAMES)}"
        )
    return array
