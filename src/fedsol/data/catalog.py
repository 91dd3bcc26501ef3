"""The datasets that fedsol knows by name (`datasets.toml`), and how to load what `[data]` names."""

import tomllib
from dataclasses import replace
from importlib import resources
from pathlib import Path

import torch
from pydantic import TypeAdapter

from fedsol.config.tables import IN_MEMORY, PRIVATE, DataSettings, unknown_name
from fedsol.core.imports import import_object
from fedsol.core.paths import user_path
from fedsol.data.checks import check_augmentation
from fedsol.data.files import DatasetFiles, FileResult
from fedsol.data.folders import CACHE_FOLDER
from fedsol.data.own import given_dataset, load_own
from fedsol.data.private import private_dataset
from fedsol.data.tables import check_no_table
from fedsol.data.types import Dataset, DatasetSpec, ImageOptions, tensors_of
from fedsol.errors import InputError


def _read_specs() -> dict[str, DatasetSpec]:
    table = tomllib.loads(resources.files("fedsol.data").joinpath("datasets.toml").read_text(encoding="utf-8"))
    for name, row in table.items():
        reader = import_object(f"fedsol.data.{row['reader']}", f"{name}.reader")
        row |= {"name": name, "reader": reader}
    return TypeAdapter(dict[str, DatasetSpec]).validate_python(table)


SPECS = _read_specs()


def find_spec(name: str) -> DatasetSpec:
    """Return the row of the table with this name."""
    if name not in SPECS:
        raise unknown_name("data.name", name, SPECS)
    return SPECS[name]


def load_dataset(settings: DataSettings, kind: str = "classification", data: object = None) -> Dataset:
    """Return the dataset that `[data]` names for a kind of task, with its channels, augmentation and part.

    `data` is the data itself, if it is in memory: anything that a function named by `data.name` may return.
    """
    if data is not None or settings.name == IN_MEMORY:
        dataset = given_dataset(data, settings, kind)
    elif settings.name == PRIVATE:
        dataset = private_dataset(settings, kind)
    elif settings.name in SPECS:
        if kind != "classification":
            raise InputError(
                f"task.kind: {kind!r} does not fit {settings.name!r}, which has one class per image; allowed: "
                "classification"
            )
        dataset = _load_named(settings)
    else:
        dataset = load_own(settings, kind)
    dataset = with_image_settings(dataset, settings)
    if kind == "segmentation" and (dataset.augmentation.pad or dataset.augmentation.flip):
        raise InputError("data.augmentation: pad and flip must not be set for segmentation: labels would not follow")
    if settings.part == 1:
        return dataset
    # Every n-th sample, so that a test set sorted by class still has all classes.
    total, count = len(dataset.test), max(1, round(settings.part * len(dataset.test)))
    return replace(dataset, test=dataset.test.select(torch.linspace(0, total - 1, count, dtype=torch.float64).long()))


def with_image_settings(dataset: Dataset, settings: DataSettings) -> Dataset:
    """Return the dataset with the channels and the augmentation of `[data]`."""
    changes = {key: value for key, value in settings.augmentation.model_dump().items() if value is not None}
    images = tensors_of(dataset.train.inputs).get("")
    if images is None or images.dtype != torch.uint8:
        if changes or settings.channels is not None:
            raise InputError(f"data.channels, data.augmentation: must not be set, as {settings.name!r} has no images")
        return dataset
    stored = images.shape[1]
    channels = settings.channels if settings.channels is not None else dataset.channels
    if channels != stored != 1:
        raise InputError(f"data.channels: must be {stored}, as in the images of {settings.name!r} (got {channels})")
    augmentation = replace(dataset.augmentation, **changes)
    check_augmentation(augmentation, images)
    return replace(dataset, augmentation=augmentation, channels=channels)


def _load_named(settings: DataSettings) -> Dataset:
    for key in ("test_fraction", "layout"):
        if getattr(settings, key) != DataSettings.model_fields[key].default:
            raise InputError(f"data.{key}: must not be set for {settings.name!r}: it only applies to your own data")
    check_no_table(settings, f"{settings.name!r} has images")
    if settings.standardize:
        raise InputError(f"data.standardize: must not be set for {settings.name!r}: images of uint8 always are")
    root = user_path(settings.root, "data.root")
    return load(settings.name, root, settings.download, settings.image_size, settings.cache)


def load(
    name: str,
    root: Path | str,
    download: bool = False,
    image_size: int | None = None,
    cache: Path | str | None = None,
) -> Dataset:
    """Load a dataset from `root/<name>/`, verified; with `download`, missing files are fetched first.

    `image_size` is for imagenet100 only: the side in pixels that its images are resized to. `cache` is the folder for
    decoded images, by default `.fedsol-cache` in the dataset's folder.
    """
    spec = find_spec(name)
    folder, shape = Path(root) / name, stored_shape(spec, image_size)
    side = None if spec.image_size is None else shape[1]
    options = ImageOptions(side, shape[0], folder / CACHE_FOLDER if cache is None else Path(cache))
    DatasetFiles.remembered(spec, Path(root)).prepare(download)
    train, test = spec.reader(folder, spec, options)
    for part, split, size in (("training", train, spec.train_size), ("test", test, spec.test_size)):
        images = tensors_of(split.inputs)[""]
        if images.dtype != torch.uint8 or tuple(images.shape[1:]) != shape:
            raise InputError(
                f"{folder}: {part} images must be uint8 {shape} (got {images.dtype} {tuple(images.shape[1:])})"
            )
        if spec.exact_sizes and len(split) != size:
            raise InputError(f"{folder}: must have {size} {part} images (got {len(split)})")
    parts = (spec.augmentation, spec.channels, spec.class_names)
    return Dataset(name, train, test, spec.classes, spec.mean, spec.std, *parts)


def fetch(name: str, root: Path | str) -> list[FileResult]:
    """Download the missing files of a dataset, verify and extract them; return the state of each file."""
    files = DatasetFiles.remembered(find_spec(name), Path(root))
    files.prepare(may_download=True)
    return files.results()


def verify(name: str, root: Path | str) -> list[FileResult]:
    """Rehash every file of a dataset and return the state of each; an empty list if it has no files."""
    return DatasetFiles(find_spec(name), Path(root)).results()


def stored_shape(spec: DatasetSpec, image_size: int | None = None) -> tuple[int, int, int]:
    """Return the shape of a stored image, (channels, height, width), resized to `image_size` if that is set."""
    if image_size is None:
        return spec.shape
    if spec.image_size is None:
        raise InputError(f"data.image_size: must not be set for {spec.name}, whose images are not resized")
    if image_size < 1:
        raise InputError(f"data.image_size: must be at least 1 (got {image_size})")
    return (spec.shape[0], image_size, image_size)
