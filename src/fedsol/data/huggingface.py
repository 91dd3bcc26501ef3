"""Hugging Face datasets: a folder that `save_to_disk` wrote, a name on the hub, or the object itself."""

import hashlib
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedsol.config.tables import DataSettings, suggestion
from fedsol.core.logs import quiet
from fedsol.core.paths import user_path
from fedsol.data.arrays import Source, build_dataset, divided
from fedsol.data.cache import CACHE_VERSION, cached
from fedsol.data.columns import MOST_CATEGORIES
from fedsol.data.folders import CACHE_FOLDER, GRAYSCALE_MODES, square
from fedsol.data.items import TARGETS, TOKENS, read_items
from fedsol.data.tables import LARGE_FILE, READING, check_columns, table_dataset
from fedsol.data.types import MASK, Dataset
from fedsol.errors import InputError

PREFIX = "hf:"
TEST = "test"
SCALARS = ("Value", "ClassLabel")
"""The kinds of columns that make a table: numbers, text, and classes."""


def is_saved(path: Path) -> bool:
    """Return whether a folder was written by `save_to_disk`."""
    return (path / "dataset_dict.json").is_file() or (path / "dataset_info.json").is_file()


def is_hugging_face(data: object) -> bool:
    """Return whether an object is a dataset (or several splits) of Hugging Face, without importing the library."""
    library = sys.modules.get("datasets")
    return library is not None and isinstance(data, library.Dataset | library.DatasetDict)


def load_hugging_face(name: str, settings: DataSettings, kind: str) -> Dataset:
    """Return the Dataset of a folder or of a name on the hub; images and large data are stored and memory-mapped."""
    path = user_path(name.removeprefix(PREFIX), "data.name")
    data = open_dataset(path, name.removeprefix(PREFIX))
    source = Source(name, kind, settings.test_fraction)
    first = next(iter(data.values())) if isinstance(data, Mapping) else data

    def make() -> Dataset:
        return replace(hugging_face_dataset(data, settings, source), name=path.name)

    has_images = any(type(feature).__name__ == "Image" for feature in first.features.values())
    if not has_images and first.data.nbytes < LARGE_FILE:
        return make()
    folder = Path(settings.cache) if settings.cache is not None else _cache_beside(path)
    return cached(folder / _cache_key(path.name, data, settings, kind), make)


def open_dataset(path: Path, name: str) -> Any:
    """Return the dataset, or its splits by name, of a folder or of a name on the hub."""
    try:
        import datasets
    except ImportError as error:
        raise InputError(
            f"data.name: {name!r} requires Hugging Face datasets, which is not installed; run: "
            "pip install 'fedsol[text]'"
        ) from error
    try:
        if path.is_dir():
            return datasets.load_from_disk(str(path))
        with quiet("huggingface_hub", logging.CRITICAL):  # each attempt to reach it; the last error says it once
            return datasets.load_dataset(*name.split(":", 1))  # NAME, or NAME:CONFIGURATION
    except Exception as error:  # the library and the network may raise anything
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        what = "a folder written by save_to_disk" if path.is_dir() else "an existing folder or a dataset on the hub"
        raise InputError(f"data.name: 'hf:{name}' cannot be read; must be {what} ({text[:200]})") from error


def _cache_beside(path: Path) -> Path:
    if path.is_dir():
        return path / CACHE_FOLDER
    from datasets import config

    return Path(config.HF_DATASETS_CACHE) / CACHE_FOLDER


def _cache_key(name: str, data: Any, settings: DataSettings, kind: str) -> str:
    parts = data if isinstance(data, Mapping) else {"train": data}
    fingerprints = {part: split._fingerprint for part, split in parts.items()}
    chosen = settings.model_dump(include={*READING, "test", "image_size", "channels"})
    text = json.dumps([CACHE_VERSION, kind, fingerprints, chosen], sort_keys=True)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def hugging_face_dataset(data: Any, settings: DataSettings, source: Source) -> Dataset:
    """Return the Dataset of a split or of several: a table if all columns are numbers, text and classes."""
    train, test = _splits(data, settings, source)
    columns = list(train.features)
    if source.kind == "next-token" and TOKENS in columns:
        features = settings.features or [name for name in (TOKENS, MASK) if name in columns]
        settings = settings.model_copy(update={"features": features})
    elif settings.target is None:
        known = [name for name in TARGETS if name in columns]
        if not known:
            raise InputError(f"data.target: is missing; set it to the column to predict, one of {', '.join(columns)}")
        settings = settings.model_copy(update={"target": known[0]})
    if settings.layout != "class":
        raise InputError(f"data.layout: only applies to image folders, not to {source.name!r}")
    if settings.separator is not None:
        raise InputError(f"data.separator: only applies to CSV files, not to {source.name!r}")
    taken = {settings.client, *([settings.target] if isinstance(settings.target, str) else settings.target or [])}
    check_columns(settings, columns)
    features = settings.features or [name for name in columns if name not in taken]
    if all(type(train.features[name]).__name__ in SCALARS for name in features):
        return _table(train, test, settings, features, source)
    return _items(train, test, settings, features, source)


def _splits(data: Any, settings: DataSettings, source: Source) -> tuple[Any, Any | None]:
    if not isinstance(data, Mapping):
        if settings.test is not None:
            raise InputError(f"data.test: must not be set, as {source.name!r} has one split (got {settings.test!r})")
        return data, None
    if "train" not in data:
        raise InputError(f"{source.name}: has no split 'train'; it has {', '.join(data)}")
    if settings.test is not None:
        if settings.test not in data:
            hint = suggestion(settings.test, data)
            raise InputError(f"data.test: unknown value {settings.test!r}; {hint}")
        return data["train"], data[settings.test]
    if source.test_fraction is None and TEST not in data:
        raise InputError(
            f"{source.name}: has no split 'test'; set data.test to one of {', '.join(data)}, or data.test_fraction"
        )
    return data["train"], data.get(TEST) if source.test_fraction is None else None


def _table(train: Any, test: Any | None, settings: DataSettings, features: Sequence[str], source: Source) -> Dataset:
    frame = frame_of(train)
    for name in features:
        texts = frame[name].nunique() if train.features[name].dtype in ("string", "large_string") else 0
        if name not in settings.categorical and texts > max(MOST_CATEGORIES, len(train) / 2):
            raise InputError(
                f"{source.name}: column {name!r} is text; tokenize it first (a column input_ids, as a "
                "tokenizer with dataset.map does), or leave it out of data.features"
            )
    return table_dataset(frame, None if test is None else frame_of(test), settings, source)


def frame_of(part: Any) -> Any:
    """Return a split as a data frame, with classes by their names."""
    frame = part.to_pandas()
    for name, feature in part.features.items():
        if type(feature).__name__ == "ClassLabel":
            names = dict(enumerate(feature.names))
            frame[name] = frame[name].map(names)  # -1, no label, becomes a missing value
    return frame


def _items(train: Any, test: Any | None, settings: DataSettings, features: Sequence[str], source: Source) -> Dataset:
    """Return the Dataset of images, sequences and arrays."""
    if isinstance(settings.target, list):
        raise InputError("data.target: must be one column for images and sequences; store several as one list")
    for field in ("categorical", "missing"):
        if getattr(settings, field) != DataSettings.model_fields[field].default:
            raise InputError(f"data.{field}: only applies to tables, and {source.name!r} has images or sequences")
    parts, modes = [part for part in (train, test) if part is not None], _modes(train, features, settings)
    both = read_items([_Rows(part, features, settings, modes) for part in parts], source)
    if settings.client is not None:
        owners = np.concatenate([np.asarray(part[settings.client]) for part in parts])
        both = replace(both, clients=owners)
    count = len(train)
    first, second = both.select(slice(count)), None if test is None else both.select(slice(count, None))
    feature = train.features.get(settings.target)
    names = tuple(feature.names) if type(feature).__name__ == "ClassLabel" else None
    is_numbered = names is not None and source.kind == "classification"
    return build_dataset(source.name, divided(first, second, source), source, names if is_numbered else None)


@dataclass(frozen=True)
class _Rows:
    """The rows of a split as items: one feature alone without its name, several by name."""

    part: Any
    features: Sequence[str]
    settings: DataSettings
    modes: Mapping[str, str]
    """The mode of Pillow for each column of images."""

    def __len__(self) -> int:
        return len(self.part)

    def __getitem__(self, index: int) -> Any:
        row, target = self.part[index], self.settings.target
        inputs = {name: self._image(name, row[name]) if name in self.modes else row[name] for name in self.features}
        if len(self.features) == 1 and self.features[0] != TOKENS:
            return inputs[self.features[0]], row[target]
        return inputs if target is None else {**inputs, "labels": row[target]}

    def _image(self, name: str, image: Any) -> Any:
        if image is None:
            raise InputError(f"has no image in {name!r}")
        mode, size = self.modes[name], self.settings.image_size
        if mode == "L" and image.mode not in GRAYSCALE_MODES and self.settings.channels is None:
            raise InputError("has a color image, and the first item a gray one; set data.channels to 1 or 3")
        converted = image.convert(mode)
        return converted if size is None else square(converted, size, name)


def _modes(train: Any, features: Sequence[str], settings: DataSettings) -> dict[str, str]:
    """Return the mode of Pillow for each column of images: as `data.channels` says, or as in the first row."""
    names = [name for name in features if type(train.features[name]).__name__ == "Image"]
    first = train[0] if names else {}
    gray = {name: getattr(first[name], "mode", "") in GRAYSCALE_MODES for name in names}
    return {
        name: "L" if settings.channels == 1 or (settings.channels is None and gray[name]) else "RGB" for name in names
    }
