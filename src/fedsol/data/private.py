"""Data that only the nodes of a deployment have: what the server knows about it, and how a node reads its own."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fedsol.config.tables import DataSettings, PrivateSettings, shown
from fedsol.core.memory import require_memory
from fedsol.core.paths import user_path
from fedsol.data.arrays import Samples, Source, samples_of
from fedsol.data.checks import IGNORED, check_images, require_label_places
from fedsol.data.columns import encode, require_present
from fedsol.data.folders import CACHE_FOLDER, decode, list_images
from fedsol.data.frames import is_table, read_frame
from fedsol.data.mistakes import warn_of_mistakes
from fedsol.data.readers import read_npz
from fedsol.data.tables import TASKS, check_no_table, require_columns, targets_of
from fedsol.data.types import UNSCALED, Array, Category, Columns, Dataset, ImageOptions, Inputs, Number, Split
from fedsol.errors import InputError

NOT_PRIVATE = ("test", "features", "categorical", "client", "test_fraction")
"""Settings of tables that private data has other ones for."""


def private_dataset(settings: DataSettings, kind: str = "classification") -> Dataset:
    """Return the data as the server sees it: no training samples, and its own test set if it has one."""
    agreed = _Agreement(settings, kind)
    agreed.check()
    test = settings.private.test
    return agreed.dataset(agreed.empty(), agreed.empty() if test is None else agreed.read(test, "test"))


def load_private(source: str, settings: DataSettings, kind: str = "classification") -> Dataset:
    """Return the data as a node sees it: its own samples for training, and no test set."""
    agreed = _Agreement(settings, kind)
    agreed.check()
    dataset = agreed.dataset(agreed.read(source, "train"), agreed.empty())
    require_label_places(dataset.train, kind, source)
    warn_of_mistakes(dataset, source)
    return dataset


@dataclass(frozen=True)
class _Agreement:
    """What all nodes have agreed on: the form of inputs and targets, which then mean the same everywhere."""

    settings: DataSettings
    kind: str

    @property
    def private(self) -> PrivateSettings:
        return self.settings.private

    @property
    def columns(self) -> Columns | None:
        """How the columns of every node's table become inputs."""
        if self.private.inputs != "table":
            return None
        is_filled = self.settings.missing == "mean"
        scales = self.private.numbers.items()
        numbers = [Number(name, mean, std, mean if is_filled else None) for name, (mean, std) in scales]
        categories = [Category(name, tuple(values)) for name, values in self.private.categories.items()]
        return Columns(tuple(numbers), tuple(categories))

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns to predict, in a table."""
        target = self.settings.target
        return (target,) if isinstance(target, str) else tuple(target or ())

    @property
    def outputs(self) -> int:
        """The size of the model's output; 0 if it is not known."""
        if self.kind == "regression":
            return len(self.private.target_mean)
        if self.kind == "multilabel" and self.private.inputs == "table":
            return len(self.targets)
        return self.private.classes or len(self.private.class_names)

    def check(self) -> None:
        """Raise `InputError` unless everything is agreed on that a model and all nodes must know."""
        private, settings = self.private, self.settings
        if self.kind == "next-token":
            raise InputError(
                "task.kind: 'next-token' does not fit private data; its nodes have images, features or tables"
            )
        _check_table(self) if private.inputs == "table" else _check_shape(settings)
        if settings.standardize:
            _check_statistics(private)
        if self.kind == "regression" and not 0 < len(private.target_mean) == len(private.target_std):
            raise InputError(
                "data.private.target_mean, data.private.target_std: are missing; set one number for each target, by "
                "which every node standardizes its own"
            )
        if not self.outputs:
            raise InputError("data.private.classes: is missing; set it, or data.private.class_names")
        if private.class_names and self.outputs != len(private.class_names):
            count = len(private.class_names)
            raise InputError(f"data.private.classes: must be {count}, the number of class_names (got {self.outputs})")
        if settings.part != 1:
            raise InputError(
                f"data.part: must be 1 with private data, as nodes use all of theirs (got {settings.part})"
            )
        if settings.partition.clients is None:
            raise InputError("data.partition.clients: is missing; with private data it is the number of nodes")

    def dataset(self, train: Split, test: Split) -> Dataset:
        """Return a dataset of these splits."""
        private, images = self.private, self.private.inputs == "images"
        scaled = images or self.settings.standardize
        names = self.targets if self.kind != "classification" else ()
        dataset = Dataset(
            name="private",
            train=train,
            test=test,
            classes=self.outputs,
            mean=tuple(private.mean) if scaled else UNSCALED[0],
            std=tuple(private.std) if scaled else UNSCALED[1],
            channels=private.shape[0] if images else 1,
            class_names=tuple(private.class_names) or names,
            columns=self.columns,
            target_mean=tuple(private.target_mean) if self.kind == "regression" else (),
            target_std=tuple(private.target_std) if self.kind == "regression" else (),
        )
        check_images(dataset, "data.private")
        return dataset

    def empty(self) -> Split:
        """Return a split without samples."""
        return Split(self._empty_inputs(), self._empty_labels())

    def _empty_inputs(self) -> Inputs:
        columns = self.columns
        if columns is None:
            dtype = torch.uint8 if self.private.inputs == "images" else torch.float32
            return torch.zeros((0, *self.private.shape), dtype=dtype)
        numbers = torch.zeros(0, len(columns.numbers))
        codes = torch.zeros((0, len(columns.categories)), dtype=torch.int64)
        return {"numbers": numbers, "categories": codes} if columns.categories else numbers

    def _empty_labels(self) -> Tensor:
        if self.kind in ("multilabel", "regression"):
            return torch.zeros(0, self.outputs)
        shape = (0, *self.private.shape[1:]) if self.kind == "segmentation" else (0,)
        return torch.zeros(shape, dtype=torch.int64)

    def read(self, source: str, part: str) -> Split:
        """Read a table, an `.npz` file (`x_train`, `y_train` or `x_test`, `y_test`) or a folder of images by class."""
        path = user_path(source)
        if self.columns is not None:
            return self._read_table(path, self.columns, source)
        if path.is_dir():
            samples: Samples | None = self._read_folder(path, part)
        elif path.suffix == ".npz":
            samples = samples_of(read_npz(path), f"x_{part}", f"y_{part}", Source(source, self.kind))
        else:
            raise InputError(f"{source}: must be an existing folder of images or an .npz file")
        if samples is None:
            raise InputError(f"{source}: has no arrays x_{part} and y_{part}")
        inputs, expected = samples.inputs, cast(Tensor, self._empty_inputs())
        assert isinstance(inputs, Tensor)
        if inputs.shape[1:] != expected.shape[1:] or inputs.dtype != expected.dtype:
            raise InputError(
                f"{source}: inputs must be {expected.dtype} {tuple(expected.shape[1:])}, as in data.private "
                f"(got {inputs.dtype} {tuple(inputs.shape[1:])})"
            )
        return Split(inputs, self._labels(samples.targets, source))

    def _read_table(self, path: Path, columns: Columns, source: str) -> Split:
        if not is_table(path):
            raise InputError(f"{source}: must be a .csv or .parquet file, as data.private.inputs is 'table'")
        frame = read_frame(path, self.settings.separator)
        names = [category.name for category in columns.categories]
        require_columns(frame, (*self.targets, *names, *(number.name for number in columns.numbers)), source)
        if self.settings.missing == "refuse":
            require_present(frame, names, source)
        targets = targets_of(frame, self.targets, self.kind, source)
        return Split(encode(frame, columns, source), self._labels(targets, source))

    def _read_folder(self, path: Path, part: str) -> Samples:
        if self.kind != "classification":
            raise InputError(f"{path}: is a folder with one class per image, and task.kind is {self.kind!r}")
        folder = path / part if (path / part).is_dir() else path
        files = list_images(folder, "class")
        channels = self.private.shape[0] if self.private.shape[0] in (1, 3) else None
        images = decode(files, folder, ImageOptions(self.settings.image_size, channels, path / CACHE_FOLDER))
        return Samples(torch.from_numpy(images), np.array([file.class_name for file in files]))

    def _labels(self, targets: Array, source: str) -> Tensor:
        """Return targets as labels that mean the same on every node."""
        expected = tuple(self._empty_labels().shape[1:])
        if targets.shape[1:] != expected:
            raise InputError(
                f"{source}: targets must have the shape (N, {', '.join(map(str, expected))}) (got {targets.shape})"
            )
        if self.kind == "regression":
            mean, std = np.array(self.private.target_mean), np.array(self.private.target_std)
            return torch.from_numpy(((cast(Any, targets) - mean) / std).astype(np.float32))
        if self.kind == "multilabel":
            return torch.from_numpy(targets.astype(np.float32))
        return _numbered(targets, self.private.class_names, self.outputs, source)


def _check_shape(settings: DataSettings) -> None:
    private = settings.private
    check_no_table(settings, "data.private.inputs is not 'table'")
    for field in ("numbers", "categories"):
        if getattr(private, field):
            raise InputError(f"data.private.{field}: only applies to data.private.inputs = 'table'")
    if not private.shape:
        raise InputError("data.private.shape: is missing; set the shape of one input, such as [3, 32, 32]")
    if private.inputs == "images" and len(private.shape) != 3:
        raise InputError(f"data.private.shape: must be [channels, height, width] for images (got {private.shape})")
    require_memory(8 * math.prod(private.shape), f"data.private.shape: two inputs of shape {shown(private.shape)}")


def _check_statistics(private: PrivateSettings) -> None:
    """Raise `InputError` unless the statistics that standardize the nodes' floats are stated: no machine has them."""
    if private.inputs != "features":
        raise InputError(
            f"data.standardize: must not be set for data.private.inputs = {private.inputs!r}: they always are"
        )
    for field, values in (("mean", private.mean), ("std", private.std)):
        if field not in private.model_fields_set or len(values) not in (1, private.shape[0]):
            raise InputError(
                f"data.private.{field}: must be stated for data.standardize, as one number or {private.shape[0]}: no "
                f"machine has all samples (got {shown(values)})"
            )


def _check_table(agreed: _Agreement) -> None:
    private, settings = agreed.private, agreed.settings
    if agreed.kind not in TASKS:
        raise InputError(f"task.kind: {agreed.kind!r} does not fit a table; allowed: {', '.join(TASKS)}")
    for field in NOT_PRIVATE:
        if getattr(settings, field) != DataSettings.model_fields[field].default:
            raise InputError(f"data.{field}: must not be set with private data; [data.private] names what nodes share")
    if private.shape:
        raise InputError("data.private.shape: must not be set for a table; its columns define it")
    if settings.missing == "median":
        raise InputError("data.missing: must be 'refuse' or 'mean' with private data: no machine has all rows")
    if not agreed.targets:
        raise InputError("data.target: is missing; set it to the column to predict")
    if not private.numbers and not private.categories:
        raise InputError("data.private.numbers: is missing; set it, or data.private.categories, to the nodes' columns")
    for name in agreed.targets:
        if name in private.numbers or name in private.categories:
            raise InputError(f"data.target: {name!r} must not be among the columns of [data.private]")
    both = sorted({*private.numbers} & {*private.categories})
    if both:
        raise InputError(f"data.private.categories: {both[0]!r} must not be among data.private.numbers")


def _numbered(labels: Array, names: list[str], classes: int, source: str) -> Tensor:
    """Return classes as numbers that mean the same on every node."""
    if labels.dtype.kind in "US":
        unknown = sorted({*labels.astype(str).tolist()} - {*names})
        if unknown:
            raise InputError(f"{source}: the class {unknown[0]!r} is not in data.private.class_names {names}")
        return torch.tensor([names.index(name) for name in labels.astype(str).tolist()])
    numbers = labels.astype(np.int64)
    counted = numbers if numbers.ndim == 1 else numbers[numbers != IGNORED]
    if len(counted) and (counted.min() < 0 or counted.max() >= classes):
        raise InputError(f"{source}: labels must be 0 to {classes - 1} (got {counted.min()} to {counted.max()})")
    return torch.from_numpy(numbers)
