"""Small datasets in the publishers' real file formats."""

import gzip
import hashlib
import io
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedsol.data.types import DatasetSpec, Member, RemoteFile

CINIC_CLASSES = [f"class{number}" for number in range(10)]


@dataclass(frozen=True)
class Published:
    """A small dataset as its publisher would offer it, and what must be read from it."""

    spec: DatasetSpec
    folder: Path
    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]

    @property
    def files(self) -> list[Path]:
        return [self.folder / remote.name for remote in self.spec.files]


def md5(path: Path) -> str:
    return f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}"


def draw(seed: int, count: int, classes: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, *shape), dtype=np.uint8), (np.arange(count) % classes).astype(np.uint8)


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">i4").tobytes()
    path.write_bytes(gzip.compress(header + array.tobytes()))


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def encoded(image: np.ndarray, kind: str = "PNG") -> bytes:
    """A (C, H, W) image as the bytes of a file."""
    buffer = io.BytesIO()
    pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def make_mnist(folder: Path) -> tuple[Any, Any]:
    train, test = draw(0, 20, 10, (1, 28, 28)), draw(1, 10, 10, (1, 28, 28))
    for part, (images, labels) in (("train", train), ("t10k", test)):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images[:, 0])
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)
    return train, test


def cifar_records(images: np.ndarray, *labels: np.ndarray) -> bytes:
    columns = [label[:, None] for label in labels]
    return np.concatenate([*columns, images.reshape(len(images), -1)], axis=1).astype(np.uint8).tobytes()


def make_cifar10(folder: Path) -> tuple[Any, Any]:
    train, test = draw(0, 20, 10, (3, 32, 32)), draw(1, 10, 10, (3, 32, 32))
    members = {"cifar-10-batches-bin/batches.meta.txt": b"airplane\n"}
    for number in range(5):
        part = slice(4 * number, 4 * number + 4)
        members[f"cifar-10-batches-bin/data_batch_{number + 1}.bin"] = cifar_records(train[0][part], train[1][part])
    members["cifar-10-batches-bin/test_batch.bin"] = cifar_records(*test)
    write_tar(folder / "cifar-10-binary.tar.gz", members)
    return train, test


def make_cifar100(folder: Path) -> tuple[Any, Any]:
    train, test = draw(0, 110, 100, (3, 32, 32)), draw(1, 10, 100, (3, 32, 32))
    members = {}
    for name, (images, labels) in (("train", train), ("test", test)):
        members[f"cifar-100-binary/{name}.bin"] = cifar_records(images, labels // 5, labels)
    write_tar(folder / "cifar-100-binary.tar.gz", members)
    return train, test


def make_svhn(folder: Path) -> tuple[Any, Any]:
    from scipy.io import savemat

    train, test = draw(0, 20, 10, (3, 32, 32)), draw(1, 10, 10, (3, 32, 32))
    for name, (images, labels) in (("train", train), ("test", test)):
        stored = np.where(labels == 0, 10, labels)[:, None].astype(np.uint8)
        savemat(folder / f"{name}_32x32.mat", {"X": images.transpose(2, 3, 1, 0), "y": stored})
    return train, test


def make_cinic10(folder: Path) -> tuple[Any, Any]:
    train, test = draw(0, 20, 10, (3, 32, 32)), draw(1, 10, 10, (3, 32, 32))
    members = {"README.md": b"CINIC-10\n"}
    for part, (images, labels) in (("train", train), ("valid", test), ("test", test)):
        for index, (image, label) in enumerate(zip(images, labels, strict=True)):
            members[f"./{part}/{CINIC_CLASSES[label]}/{index:04}.png"] = encoded(image)
    write_tar(folder / "CINIC-10.tar.gz", members)
    order = np.argsort(train[1], kind="stable")
    return (train[0][order], train[1][order]), test


def make_medmnist(folder: Path, channels: int, classes: int) -> tuple[Any, Any]:
    parts = {name: draw(i, 9, classes, (channels, 28, 28)) for i, name in enumerate(("train", "val", "test"))}
    arrays = {}
    for name, (images, labels) in parts.items():
        arrays[f"{name}_images"] = images[:, 0] if channels == 1 else images.transpose(0, 2, 3, 1)
        arrays[f"{name}_labels"] = labels[:, None]
    np.savez_compressed(folder / f"{folder.name}.npz", **arrays)
    train = tuple(np.concatenate(pair) for pair in zip(parts["train"], parts["val"], strict=True))
    return train, parts["test"]


MAKERS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "mnist": make_mnist,
    "fashion-mnist": make_mnist,
    "cifar10": make_cifar10,
    "cifar100": make_cifar100,
    "svhn": make_svhn,
    "cinic10": make_cinic10,
    "pathmnist": partial(make_medmnist, channels=3, classes=9),
    "tissuemnist": partial(make_medmnist, channels=1, classes=8),
}


def put(published: Published, root: Path) -> Path:
    """The published files, put into a data root by hand."""
    target = root / published.spec.name
    shutil.copytree(published.folder, target)
    return target


def with_checksum(remote: RemoteFile, folder: Path) -> RemoteFile:
    """The file's row in the table, with the checksum and the members of the small file."""
    path = folder / remote.name
    members = []
    for member in remote.members:
        with tarfile.open(path) as archive:
            content = archive.extractfile(f"{remote.extracts_to}/{member.path}").read()
        checksum = member.checksum and f"md5:{hashlib.md5(content).hexdigest()}"
        members.append(Member(member.path, len(content), checksum))
    return replace(remote, checksum=md5(path), members=tuple(members))
