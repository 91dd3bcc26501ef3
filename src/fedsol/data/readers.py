"""Readers of the publishers' own file formats. Each checks what it reads and names the file that is wrong."""

import gzip
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsol.data.arrays import Array, make_split, stratified_test_indices
from fedsol.data.types import DatasetSpec, ReadOptions, Split
from fedsol.errors import InputError

DIGITS_TEST_SIZE = 360
IDX_UINT8 = 8
CIFAR_PIXELS = 3 * 32 * 32


def read_digits(_folder: Path, spec: DatasetSpec, _options: ReadOptions) -> tuple[Split, Split]:
    """scikit-learn's handwritten digits, which need no file; the split is the same for ever.

    Values 0 … 16 are stored as 0, 15, … 240.
    """
    from sklearn.datasets import load_digits

    values, labels = load_digits(return_X_y=True)
    images = (values * 15).astype(np.uint8).reshape(-1, 1, 8, 8)
    in_test = np.zeros(len(labels), dtype=bool)
    in_test[stratified_test_indices(labels, DIGITS_TEST_SIZE)] = True
    train, test = (make_split(images[part], labels[part], spec.classes, "digits") for part in (~in_test, in_test))
    return train, test


def read_mnist(folder: Path, spec: DatasetSpec, _options: ReadOptions) -> tuple[Split, Split]:
    """MNIST and what is stored like it: four gzipped idx files."""
    splits = []
    for part in ("train", "t10k"):
        path = folder / f"{part}-images-idx3-ubyte.gz"
        images = read_idx(path, dimensions=3)
        labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz", dimensions=1)
        splits.append(make_split(images[:, None], labels, spec.classes, path))
    return splits[0], splits[1]


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An idx file of unsigned bytes, gzipped if its name ends in .gz, with the given number of dimensions."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes([0, 0, IDX_UINT8, dimensions]):
        raise InputError(f"{path}: does not start as an idx file of unsigned bytes in {dimensions} dimensions")
    shape = np.frombuffer(content, dtype=">i4", count=dimensions, offset=4)
    expected, found = int(shape.astype(np.int64).prod()), len(content) - header
    if expected != found:
        raise InputError(f"{path}: holds {found} bytes of data where its header announces {expected}")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy()


def read_cifar10(folder: Path, spec: DatasetSpec, _options: ReadOptions) -> tuple[Split, Split]:
    """CIFAR-10, binary version: five training files and one test file."""
    inside = folder / "cifar-10-batches-bin"
    parts = [_read_cifar(inside / f"data_batch_{number}.bin", 1) for number in range(1, 6)]
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    train = make_split(images, labels, spec.classes, inside / "data_batch_1.bin … data_batch_5.bin")
    test_file = inside / "test_batch.bin"
    return train, make_split(*_read_cifar(test_file, 1), spec.classes, test_file)


def read_cifar100(folder: Path, spec: DatasetSpec, _options: ReadOptions) -> tuple[Split, Split]:
    """CIFAR-100, binary version; of its two labels the second, fine one."""
    files = [folder / "cifar-100-binary" / name for name in ("train.bin", "test.bin")]
    train, test = (make_split(*_read_cifar(path, 2), spec.classes, path) for path in files)
    return train, test


def _read_cifar(path: Path, label_bytes: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images and the last of their labels; each record is its labels, then 3 x 32 x 32 pixels."""
    try:
        content = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    record = label_bytes + CIFAR_PIXELS
    if len(content) == 0 or len(content) % record:
        raise InputError(f"{path}: its {len(content)} bytes are not a number of whole records of {record} bytes")
    rows = content.reshape(-1, record)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1]


def read_svhn(folder: Path, spec: DatasetSpec, _options: ReadOptions) -> tuple[Split, Split]:
    """SVHN's cropped digits, in MATLAB files; the publisher's label 10 is the digit 0."""
    train, test = (_read_svhn_file(folder / f"{part}_32x32.mat", spec.classes) for part in ("train", "test"))
    return train, test


def _read_svhn_file(path: Path, classes: int) -> Split:
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=["X", "y"])
        images, labels = content["X"], content["y"].reshape(-1)
    except KeyError as error:
        raise InputError(f"{path}: has no array {error.args[0]!r}") from error
    except Exception as error:  # scipy raises whatever its parser stumbles over in a damaged file
        raise InputError(f"{path}: cannot be read as a MATLAB file: {error}") from error
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise InputError(f"{path}: X is {images.dtype} {images.shape}; it must be uint8 (32, 32, 3, N)")
    labels = labels.astype(np.int64)
    labels[labels == 10] = 0
    return make_split(images.transpose(3, 2, 0, 1), labels, classes, path)


def read_medmnist(folder: Path, spec: DatasetSpec, _options: ReadOptions) -> tuple[Split, Split]:
    """A MedMNIST file; its training and validation images together are the training set."""
    path = folder / f"{spec.name}.npz"
    arrays = read_npz(path)
    needed = [f"{part}_{kind}" for part in ("train", "val", "test") for kind in ("images", "labels")]
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise InputError(f"{path}: has no array {', '.join(missing)}; it has {', '.join(arrays)}")
    images = {part: medmnist_images(arrays[f"{part}_images"], path) for part in ("train", "val", "test")}
    labels = {part: arrays[f"{part}_labels"].reshape(-1) for part in ("train", "val", "test")}
    train = make_split(
        np.concatenate([images["train"], images["val"]]),
        np.concatenate([labels["train"], labels["val"]]),
        spec.classes,
        path,
    )
    return train, make_split(images["test"], labels["test"], spec.classes, path)


def medmnist_images(images: Array, path: Path) -> NDArray[np.uint8]:
    """Grey (N, H, W) or colour (N, H, W, 3) images as (N, C, H, W)."""
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise InputError(f"{path}: images are {images.dtype} {images.shape}; they must be uint8 (N, H, W[, 3])")
    pixels = images.astype(np.uint8, copy=False)
    return pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2)


def read_npz(path: Path) -> dict[str, Array]:
    """All arrays of an .npz file; pickled objects are refused."""
    try:
        with path.open("rb") as file:
            stored = np.load(file, allow_pickle=False)
            if not isinstance(stored, np.lib.npyio.NpzFile):
                raise InputError(f"{path}: is a single array; an .npz file with named arrays is needed")
            with stored:
                return {name: stored[name] for name in stored.files}
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file") from error
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: cannot be read as an .npz file of plain arrays: {error}") from error
