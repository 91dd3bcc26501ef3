"""Samples to predict or to evaluate on, in every form that training data may have.

A reader of a new form is one function from a source to `Samples`, and one line in `read_samples` or `_read_path`.
"""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedsol.core.paths import user_path
from fedsol.data.checks import require_finite
from fedsol.data.columns import as_classes, encode
from fedsol.data.description import INPUTS, DataDescription, InputTensor
from fedsol.data.folders import decode_now, image_files
from fedsol.data.frames import checked_frame, is_frame, is_table, read_frame
from fedsol.data.huggingface import frame_of, is_hugging_face, is_saved, open_dataset
from fedsol.data.items import TARGETS, TOKENS, is_map_style, padded
from fedsol.data.readers import read_npz
from fedsol.data.targets import check_targets
from fedsol.data.types import MASK, Array, Dataset, ImageOptions, Inputs, Split, tensors_of
from fedsol.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

INPUT_NAMES = (INPUTS, "x", "x_test", "test_images")
LABEL_NAMES = ("labels", "y", "y_test", "test_labels")
IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
FORMS = "a folder of images, an image, an .npz file, a .csv or .parquet file"


@dataclass(frozen=True)
class Samples:
    """Inputs as they are stored, a name for each (its file, or its number), and labels if the source has them.

    Labels are as the data has them; a tensor is as a split has it.
    """

    inputs: Inputs
    names: tuple[str, ...]
    labels: Array | Tensor | None = None

    def __len__(self) -> int:
        return len(self.names)


def read_samples(source: Any, data: DataDescription) -> Samples:
    """Return the samples of a source: a path, arrays, images, a dataset, or a pair of inputs and labels."""
    if isinstance(source, str | Path):
        return _read_path(user_path(source), data)
    if is_hugging_face(source):
        return _from_hugging_face(source, data)
    if is_map_style(source):
        return _from_items(source, data)
    if isinstance(source, Dataset):
        source = source.test
    if isinstance(source, Split):
        arrays = {name or INPUTS: tensor.numpy() for name, tensor in tensors_of(source.inputs).items()}
        return _samples(arrays, source.labels, data, "")
    if isinstance(source, tuple) and len(source) == 2:
        samples = read_samples(source[0], data)
        return _with_labels(samples, _array(source[1], "labels"), "")
    if data.columns is not None:
        return _from_frame(_frame(source, data), data, "the table")
    if isinstance(source, Mapping):
        return _from_arrays(_named(_filled_up(source, data)), data, "")
    return _samples(_named(source), None, data, "")


def _named(value: Any) -> dict[str, Array]:
    """Return arrays by name; one without a name is the input."""
    if isinstance(value, Mapping):
        return {str(name): _array(one, str(name)) for name, one in value.items()}
    return {INPUTS: _array(value, INPUTS)}


def _filled_up(source: Mapping[str, Any], data: DataDescription) -> Mapping[str, Any]:
    """Return lists of tokens of different lengths as arrays, with their mask, for a model that takes one."""
    tokens = source.get(TOKENS)
    if MASK not in data.inputs or not isinstance(tokens, list) or not tokens or not isinstance(tokens[0], Sized):
        return source
    lists = {name: value for name, value in source.items() if name in data.inputs and isinstance(value, list)}
    lists.setdefault(MASK, [[1] * len(row) for row in tokens])
    return {**source, **{name: padded([np.asarray(row) for row in value], 0) for name, value in lists.items()}}


def _from_items(items: Any, data: DataDescription) -> Samples:
    """Return the items of a map-style dataset of torch, which are pairs, or dicts with the target among them."""
    rows = [items[index] for index in range(len(items))]
    if rows and isinstance(rows[0], Mapping):
        named = {str(name): [row[name] for row in rows] for name in rows[0]}
        return _from_columns(named, data)
    labels = [row[1] for row in rows if isinstance(row, tuple | list) and len(row) == 2]
    if not rows or len(labels) < len(rows):
        raise InputError("data: its items must be pairs of inputs and target, or dicts")
    inputs = [row[0] for row in rows]
    if isinstance(inputs[0], Mapping):
        return _from_columns({**{name: [one[name] for one in inputs] for name in inputs[0]}, TARGETS[0]: labels}, data)
    return _samples({INPUTS: _array(_listed(inputs), INPUTS)}, _array(_listed(labels), "labels"), data, "")


def _listed(values: Sequence[Any]) -> list[Any]:
    """Return the values of a column as numpy or Python has them."""
    return [value.detach().cpu().numpy() if isinstance(value, Tensor) else value for value in values]


def _from_columns(columns: Mapping[str, Sequence[Any]], data: DataDescription) -> Samples:
    """Return the samples in columns: the model's inputs by name (or the only other one), and the target."""
    target = next((name for name in (*data.target, *TARGETS) if name in columns), None)
    features = {name: _listed(columns[name]) for name in columns if name != target}
    if not data.is_named and len(features) != 1:
        raise InputError(f"data: must have one column besides the target (got {', '.join(columns)})")
    named = features if data.is_named else {INPUTS: next(iter(features.values()))}
    named = {name: value for name, value in named.items() if name in data.inputs}
    labels = None if target is None else _array(_listed(columns[target]), "labels")
    return _samples(_named(_filled_up(named, data)), labels, data, "")


def _from_hugging_face(found: Any, data: DataDescription) -> Samples:
    """Return the rows of a Hugging Face dataset; of several splits, those of `test`."""
    if isinstance(found, Mapping):
        if "test" not in found:
            raise InputError(f"data: has no split 'test'; choose one of {', '.join(found)}")
        found = found["test"]
    if data.columns is not None:
        return _from_frame(frame_of(found), data, "the dataset")
    columns = {name: list(found[name]) for name in found.features}
    for name, feature in found.features.items():
        if type(feature).__name__ == "ClassLabel":
            columns[name] = [feature.names[number] for number in columns[name]]
    return _from_columns(columns, data)


def _read_path(path: Path, data: DataDescription) -> Samples:
    if is_saved(path):
        return _from_hugging_face(open_dataset(path, str(path)), data)
    if path.is_dir():
        return _read_folder(path, data)
    if not path.is_file():
        raise InputError(f"{path}: no such file or folder")
    if is_table(path):
        return _from_frame(read_frame(path), data, str(path))
    if path.suffix == ".npz":
        return _from_arrays(read_npz(path), data, f"{path}: ")
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return _decoded([path], path.parent, data)
    raise InputError(f"{path}: must be {FORMS}")


def _read_folder(folder: Path, data: DataDescription) -> Samples:
    """Read the images below a folder (of one with `train` and `test`: those of `test`); folders name classes."""
    if (folder / "train").is_dir() and (folder / "test").is_dir():
        folder = folder / "test"
    samples = _decoded(image_files(folder), folder, data)
    classes = [Path(name).parent.name for name in samples.names]
    return Samples(samples.inputs, samples.names, np.array(classes) if all(classes) else None)


def _decoded(paths: Sequence[Path], folder: Path, data: DataDescription) -> Samples:
    if data.kind != "images":
        raise InputError(f"{folder}: has images, and the model takes {data.kind}")
    channels = data.input.shape[0]
    options = ImageOptions(data.image_size, channels if channels in (1, 3) else None, folder)
    names = tuple(path.relative_to(folder).as_posix() for path in paths)
    images = decode_now(paths, options)
    if images.shape[1:] != data.input.shape:
        (_, height, width), (_, own_height, own_width) = data.input.shape, images.shape[1:]
        raise InputError(
            f"{paths[0]}: must have {width} x {height} pixels, as in training (got {own_width} x {own_height})"
        )
    return Samples(torch.from_numpy(images), names)


def _from_arrays(arrays: Mapping[str, Array], data: DataDescription, source: str) -> Samples:
    """Return the samples in named arrays: the inputs by their names, or one of the names of a single input."""
    labels = next((arrays[name] for name in LABEL_NAMES if name in arrays), None)
    if data.columns is not None:
        raise InputError(f"{source}must be a table with the columns of the training data, not arrays")
    if data.is_named:
        return _samples({name: arrays[name] for name in data.inputs if name in arrays}, labels, data, source)
    inputs = next((name for name in INPUT_NAMES if name in arrays), None)
    if inputs is None:
        found = ", ".join(sorted(arrays)) or "nothing"
        raise InputError(f"{source}must have an array {' or '.join(map(repr, INPUT_NAMES))} (got {found})")
    return _samples({INPUTS: arrays[inputs]}, labels, data, source)


def _samples(arrays: Mapping[str, Array], labels: Array | Tensor | None, data: DataDescription, source: str) -> Samples:
    if arrays.keys() != data.inputs.keys():
        expected, found = ", ".join(data.inputs), ", ".join(arrays) or "nothing"
        raise InputError(f"{source}must have the inputs {expected}, as in training (got {found})")
    tensors = {
        name: _stored(arrays[name], _expected(arrays[name], one, data), f"{source}{name}")
        for name, one in data.inputs.items()
    }
    count = len(next(iter(tensors.values())))
    if count == 0:
        raise InputError(f"{source}{next(iter(tensors))}: must not be empty")
    for name, tensor in tensors.items():
        if len(tensor) != count:
            raise InputError(f"{source}{name}: must have {count} samples like the other inputs (got {len(tensor)})")
    inputs = tensors if data.is_named else tensors[INPUTS]
    return _with_labels(Samples(inputs, tuple(map(str, range(count)))), labels, source)


def _with_labels(samples: Samples, labels: Array | Tensor | None, source: str) -> Samples:
    if labels is not None and labels.ndim == 0:
        raise InputError(f"{source}labels: must be one for each sample (got a single one)")
    if labels is not None and len(labels) != len(samples):
        raise InputError(f"{source}inputs: has {len(samples)} samples but {len(labels)} labels")
    return Samples(samples.inputs, samples.names, labels)


def _frame(source: Any, data: DataDescription) -> "pd.DataFrame":
    """Return a data frame, columns by name, or an array of the columns in their order, as a frame."""
    import pandas as pd

    assert data.columns is not None
    try:
        frame = pd.DataFrame(source.detach().cpu().numpy() if isinstance(source, Tensor) else source)
    except (TypeError, ValueError) as error:
        raise InputError(f"inputs: must be a table ({error})") from error
    if not is_frame(source) and not isinstance(source, Mapping):
        names = [number.name for number in data.columns.numbers] + [one.name for one in data.columns.categories]
        if frame.shape[1] != len(names):
            raise InputError(f"inputs: must have the columns {', '.join(names)}, as in training (got {frame.shape})")
        frame = frame.set_axis(names, axis=1)
    return checked_frame(frame.infer_objects(), "the table")


def _from_frame(frame: "pd.DataFrame", data: DataDescription, source: str) -> Samples:
    """Return the rows of a table; those of one with the target's columns have labels."""
    if data.columns is None:
        raise InputError(f"{source}: is a table, and the model takes {data.kind}")
    names = tuple(map(str, range(len(frame))))
    samples = Samples(encode(frame, data.columns, source), names)
    if not data.target or not {*data.target} <= {*frame.columns}:
        return samples
    columns = [as_classes(frame[name].dropna()) for name in data.target]
    if any(len(column) < len(frame) for column in columns):
        return samples
    return replace(samples, labels=columns[0] if len(columns) == 1 else np.stack(columns, axis=1))


def _expected(array: Array, stored: InputTensor, data: DataDescription) -> InputTensor:
    """Return the form that an array must have: that of training, but tokens may have any length."""
    is_text = data.vocabulary is not None and stored.type == "int64" and len(stored.shape) == 1
    return replace(stored, shape=array.shape[1:]) if is_text and array.ndim == 2 else stored


def _stored(array: Array, expected: InputTensor, where: str) -> Tensor:
    """Return inputs as they are stored: floats of any width as 32 bits, images with the channels first."""
    if array.dtype.kind == "f" and expected.type == "float32":
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(array, dtype=np.float32)
        require_finite(array, where)
    if array.dtype.kind in "iub" and expected.type == "int64":
        array = array.astype(np.int64)
    if expected.type == "uint8" and len(expected.shape) == 3 and array.shape[1:] != expected.shape:
        channels, height, width = expected.shape
        if array.shape[1:] == (height, width, channels):
            array = np.moveaxis(array, -1, 1)
        elif channels == 1 and array.shape[1:] == (height, width):
            array = array[:, None]
    if str(array.dtype) != expected.type or array.shape[1:] != expected.shape:
        shape = ", ".join(["N", *map(str, expected.shape)])
        raise InputError(
            f"{where}: must be {expected.type} of shape ({shape}), as in training (got {array.dtype} of {array.shape})"
        )
    return torch.from_numpy(np.ascontiguousarray(array))


def _array(value: Any, where: str) -> Array:
    """Return arrays, tensors, lists of numbers, an image of Pillow or a list of them as one array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if type(value).__module__.startswith("PIL."):
        value = [value]
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{where}: must be one array, or images of one size ({error})") from error
    if array.dtype == object and array.size and all(isinstance(one, str) for one in array.flat):
        return array.astype(str)
    if array.dtype == object:
        raise InputError(f"{where}: must be an array of numbers (got a {type(value).__name__})")
    return array


def labels_of(labels: Array | Tensor, data: DataDescription, kind: str) -> Tensor:
    """Return labels as a split has them for a kind of task."""
    if isinstance(labels, Tensor):
        return labels
    array = check_targets(labels, kind, "labels")
    if kind == "classification":
        return class_numbers(array, data)
    if kind in ("multilabel", "regression"):
        if array.shape[1] != data.classes:
            raise InputError(f"labels: must have {data.classes} columns, as in training (got {array.shape[1]})")
        if kind == "multilabel":
            return torch.from_numpy(array.astype(np.float32))
        return torch.from_numpy(((array - np.array(data.target_mean)) / data.target_std).astype(np.float32))
    if array.max() >= data.classes:
        raise InputError(f"labels: must be 0 to {data.classes - 1}, as in training (got {array.max()})")
    return torch.from_numpy(array.astype(np.int64))


def class_numbers(labels: Array, data: DataDescription) -> Tensor:
    """Return classes, by their names or their numbers, as numbers."""
    number_of = {name: number for number, name in enumerate(data.names)}
    names = labels.astype(str).tolist()
    unknown = sorted({*names} - number_of.keys())
    if not unknown:
        return torch.tensor([number_of[name] for name in names])
    are_numbers = labels.dtype.kind in "iu" and not any(name.lstrip("-").isdigit() for name in data.names)
    if are_numbers and min(labels.tolist()) >= 0 and max(labels.tolist()) < data.classes:
        return torch.from_numpy(labels.astype(np.int64))
    known = ", ".join(data.names[:10]) + (" …" if len(data.names) > 10 else "")
    raise InputError(f"labels: the class {unknown[0]!r} does not occur in training; known: {known}")
