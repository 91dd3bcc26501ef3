"""Readers of the publishers' own file formats. Each checks what it reads and names the file that is wrong."""

import gzip
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedsol.core.memory import require_memory
from fedsol.data.folders import decode, list_images
from fedsol.data.types import Array, DatasetSpec, ImageOptions, Split, tensors_of
from fedsol.errors import InputError

EMBEDDED = Path(__file__).parent / "embedded"
"""The datasets that ship with fedsol, with their licenses."""
IDX_UINT8 = 8
CIFAR_PIXELS = 3 * 32 * 32
FILE_KINDS = {
    b"PK": "a damaged zip archive",
    b"\x93NUMPY": "a single array, as numpy.save writes it",
    b"\x80": "a pickle",
    b"\x1f\x8b": "a gzip file",
    b"\x89HDF": "an HDF5 file",
}
"""What a file is that begins with these bytes."""


def make_split(images: NDArray[np.uint8], labels: Array, classes: int, source: Path | str) -> Split:
    """Return a split of images (N, C, H, W) and labels, which must be 0 … classes - 1; errors name `source`."""
    if len(images) != len(labels):
        raise InputError(f"{source}: has {len(images)} images but {len(labels)} labels")
    numbers = labels.astype(np.int64)
    wrong = (numbers < 0) | (numbers >= classes)
    if wrong.any():
        raise InputError(f"{source}: labels must be 0 to {classes - 1} (got {numbers[wrong][0]})")
    return Split(torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(numbers))


def stratified_test_mask(labels: Array, count: int) -> NDArray[np.bool_]:
    """Return which `count` samples are the test set, with every class in proportion (within one sample).

    They are evenly spaced among the samples sorted by label, so nothing is random.
    """
    picks = ((np.arange(count) + 0.5) * len(labels) / max(count, 1)).astype(np.int64)
    mask = np.zeros(len(labels), dtype=bool)
    mask[np.argsort(labels, kind="stable")[picks]] = True
    return mask


def read_digits(_folder: Path, spec: DatasetSpec, _options: ImageOptions) -> Sequence[Split]:
    """Read scikit-learn's handwritten digits, which need no file; values 0 … 16 are stored as 0, 15, … 240."""
    images, labels = _parse_digits()
    in_test = stratified_test_mask(labels, spec.test_size)
    return [make_split(images[part], labels[part], spec.classes, "digits") for part in (~in_test, in_test)]


@cache
def _parse_digits() -> tuple[NDArray[np.uint8], Array]:
    """Parse the embedded file, once per process; every split is a copy."""
    # Without importing scikit-learn, which takes longer than training for some rounds.
    path = metadata.distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    table = np.loadtxt(Path(str(path)), delimiter=",")
    values, labels = table[:, :-1], table[:, -1].astype(np.int64)
    return (values * 15).astype(np.uint8).reshape(-1, 1, 8, 8), labels


def read_embedded(_folder: Path, spec: DatasetSpec, _options: ImageOptions) -> Sequence[Split]:
    """Read a dataset that ships with fedsol, made by a tool in tools/."""
    path = EMBEDDED / f"{spec.name}.npz"
    arrays = read_npz(path)
    parts = [(arrays[f"x_{part}"][:, None], arrays[f"y_{part}"]) for part in ("train", "test")]
    return [make_split(images.astype(np.uint8), labels, spec.classes, path) for images, labels in parts]


def read_mnist(folder: Path, spec: DatasetSpec, _options: ImageOptions) -> Sequence[Split]:
    """Read MNIST and datasets in its format: four gzipped idx files."""
    splits = []
    for part in ("train", "t10k"):
        path = folder / f"{part}-images-idx3-ubyte.gz"
        images = read_idx(path, dimensions=3)
        labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz", dimensions=1)
        splits.append(make_split(images[:, None], labels, spec.classes, path))
    return splits


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes, gzipped if its name ends in .gz."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes([0, 0, IDX_UINT8, dimensions]):
        raise InputError(f"{path}: must start like an idx file of unsigned bytes in {dimensions} dimensions")
    shape = np.frombuffer(content, dtype=">i4", count=dimensions, offset=4)
    expected, found = int(shape.astype(np.int64).prod()), len(content) - header
    if expected != found:
        raise InputError(f"{path}: must have {expected} bytes of data, as its header says (got {found})")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy()


def read_cifar10(folder: Path, spec: DatasetSpec, _options: ImageOptions) -> Sequence[Split]:
    """Read CIFAR-10, binary version: five training files and one test file."""
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    *parts, test = [_read_cifar(folder / "cifar-10-batches-bin" / name, 1, spec.classes) for name in names]
    images = torch.cat([tensors_of(part.inputs)[""] for part in parts])
    return Split(images, torch.cat([part.labels for part in parts])), test


def read_cifar100(folder: Path, spec: DatasetSpec, _options: ImageOptions) -> Sequence[Split]:
    """Read CIFAR-100, binary version; of its two labels, the fine one (the second)."""
    return [_read_cifar(folder / "cifar-100-binary" / f"{part}.bin", 2, spec.classes) for part in ("train", "test")]


def _read_cifar(path: Path, label_bytes: int, classes: int) -> Split:
    """Return the images of a file with the last of their labels; each record is its labels, then 3 x 32 x 32 pixels."""
    try:
        content = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    record = label_bytes + CIFAR_PIXELS
    if len(content) == 0 or len(content) % record:
        raise InputError(f"{path}: must consist of records of {record} bytes (got {len(content)} bytes)")
    rows = content.reshape(-1, record)
    return make_split(rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1], classes, path)


def read_svhn(folder: Path, spec: DatasetSpec, _options: ImageOptions) -> Sequence[Split]:
    """Read SVHN's cropped digits, in MATLAB files; the publisher's label 10 is the digit 0."""
    return [_read_svhn_file(folder / f"{part}_32x32.mat", spec.classes) for part in ("train", "test")]


def _read_svhn_file(path: Path, classes: int) -> Split:
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=["X", "y"])
        images, labels = content["X"], content["y"].reshape(-1)
    except KeyError as error:
        raise InputError(f"{path}: has no array {error.args[0]!r}") from error
    except Exception as error:  # scipy's parser may raise anything on a damaged file
        raise InputError(f"{path}: cannot be read as a MATLAB file: {error}") from error
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise InputError(f"{path}: X must be uint8 (32, 32, 3, N) (got {images.dtype} {images.shape})")
    labels = labels.astype(np.int64)
    labels[labels == 10] = 0
    return make_split(images.transpose(3, 2, 0, 1), labels, classes, path)


def read_npz(path: Path) -> dict[str, Array]:
    """Read all arrays of an .npz file; pickled objects are refused."""
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                file.seek(0)
                raise InputError(f"{path}: must be an .npz file of named arrays (got {_kind_of(file.read(4096))})")
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                if any(member.flag_bits & 1 for member in members):
                    raise InputError(f"{path}: is encrypted; save it without a password")
                require_memory(sum(member.file_size for member in members), f"{path}: the arrays")
            file.seek(0)
            with np.load(file, allow_pickle=False) as stored:
                return {name: _plain_array(stored, name, path) for name in stored.files}
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except Exception as error:  # zipfile and numpy may raise anything on a damaged file
        raise InputError(f"{path}: cannot be read as an .npz file of plain arrays: {error}") from error


def _plain_array(stored: Mapping[str, object], name: str, path: Path) -> Array:
    try:
        array = stored[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise InputError(f"{path}: {name} has Python objects; save an array of numbers or of strings") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: {name!r} is not an array; an .npz file has arrays only, as numpy.savez writes them")
    return array


def _kind_of(start: bytes) -> str:
    """Return what a file is that is no zip archive, by its first bytes."""
    for magic, kind in FILE_KINDS.items():
        if start.startswith(magic):
            return kind
    try:
        is_text = start.decode("utf-8").isprintable() or b"\0" not in start
    except UnicodeDecodeError:
        is_text = False
    return "an empty file" if not start else "a text file" if is_text else "another format, or a damaged file"


def read_cinic10(folder: Path, spec: DatasetSpec, options: ImageOptions) -> Sequence[Split]:
    """Read CINIC-10's folders `train` and `test` of PNG files; `valid` is not used."""
    return [_read_classes(folder / "CINIC-10" / part, spec, options) for part in ("train", "test")]


def read_imagenet100(folder: Path, spec: DatasetSpec, options: ImageOptions) -> Sequence[Split]:
    """Read a user's folders `train` and `val` of images, which have the same 100 classes as subfolders."""
    names = [{file.class_name for file in list_images(folder / part, "class")} for part in ("train", "val")]
    if names[0] != names[1]:
        odd = min(names[0] ^ names[1])
        raise InputError(f"{folder}: train and val must have the same classes; only one of them has {odd!r}")
    return [_read_classes(folder / part, spec, options) for part in ("train", "val")]


def _read_classes(folder: Path, spec: DatasetSpec, options: ImageOptions) -> Split:
    """Read a folder with one subfolder per class; classes are numbered in the order of their names."""
    files = list_images(folder, "class")
    names, labels = np.unique([file.class_name for file in files], return_inverse=True)
    if len(names) != spec.classes:
        raise InputError(f"{folder}: must have one folder for each of {spec.classes} classes (got {len(names)})")
    return make_split(decode(files, folder, options), labels, spec.classes, folder)
