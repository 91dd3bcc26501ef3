"""Damaged and mislabeled files in the publishers' formats each give one clear message."""

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from fedsol.data.catalog import SPECS, load
from fedsol.data.readers import read_idx
from fedsol.errors import InputError
from tests.support.small_datasets import cifar_records, encoded, put, write_idx, write_tar


def truncated_gzip(folder: Path) -> None:
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-50])


def not_gzip(folder: Path) -> None:
    (folder / "train-images-idx3-ubyte.gz").write_bytes(b"<html>not here</html>")


def wrong_magic(folder: Path) -> None:
    shutil.copy(folder / "train-labels-idx1-ubyte.gz", folder / "train-images-idx3-ubyte.gz")


def too_short_inside(folder: Path) -> None:
    path = folder / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))


def too_few_labels(folder: Path) -> None:
    write_idx(folder / "t10k-labels-idx1-ubyte.gz", np.zeros(9, dtype=np.uint8))


def wrong_label(folder: Path) -> None:
    write_idx(folder / "t10k-labels-idx1-ubyte.gz", np.full(10, 10, dtype=np.uint8))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncated_gzip, r"train-images-idx3-ubyte\.gz: cannot be read"),
        (not_gzip, r"train-images-idx3-ubyte\.gz: cannot be read"),
        (wrong_magic, r"train-images-idx3-ubyte\.gz: must start like an idx file .* 3 dimensions"),
        (too_short_inside, r"t10k-images-idx3-ubyte\.gz: must have 7840 bytes of data, .*\(got 7839\)"),
        (too_few_labels, r"t10k-images-idx3-ubyte\.gz: has 10 images but 9 labels"),
        (wrong_label, r"t10k-images-idx3-ubyte\.gz: labels must be 0 to 9 \(got 10\)"),
    ],
)
def test_damaged_idx_files(damage, message, publish, expect, tmp_path) -> None:
    folder = put(publish("mnist"), tmp_path / "root")
    damage(folder)
    expect("mnist", folder)
    with pytest.raises(InputError, match=message):
        load("mnist", tmp_path / "root")


def test_idx_files_may_be_plain(tmp_path) -> None:
    array = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)
    write_idx(tmp_path / "x.gz", array)
    (tmp_path / "x").write_bytes(gzip.decompress((tmp_path / "x.gz").read_bytes()))
    assert np.array_equal(read_idx(tmp_path / "x", 3), array)


def test_damaged_cifar_files(publish, expect, tmp_path, monkeypatch) -> None:
    published = publish("cifar100")
    folder = put(published, tmp_path / "root")
    images, labels = published.train

    def load_with(train: bytes) -> None:
        shutil.rmtree(folder / "cifar-100-binary", ignore_errors=True)
        test = cifar_records(*published.test, published.test[1])
        members = {"cifar-100-binary/train.bin": train, "cifar-100-binary/test.bin": test}
        write_tar(folder / "cifar-100-binary.tar.gz", members)
        remote = replace(SPECS["cifar100"].files[0], members=())
        monkeypatch.setitem(SPECS, "cifar100", replace(SPECS["cifar100"], files=(remote,)))
        expect("cifar100", folder)
        load("cifar100", tmp_path / "root")

    good = cifar_records(images, labels, labels)
    load_with(good)
    with pytest.raises(InputError, match=r"train\.bin: must consist of records of 3074 bytes \(got 338139"):
        load_with(good[:-1])
    with pytest.raises(InputError, match=r"train\.bin: labels must be 0 to 99 \(got 100\)"):
        load_with(cifar_records(images, labels, np.full_like(labels, 100)))
    with pytest.raises(InputError, match=r"train\.bin: .*got 0 bytes"):
        load_with(b"")


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_extracted_files_put_by_hand_are_verified(name, publish, tmp_path) -> None:
    folder = put(publish(name), tmp_path / "root")
    load(name, tmp_path / "root")
    (folder / SPECS[name].files[0].name).unlink()
    load(name, tmp_path / "root")
    member = folder / SPECS[name].files[0].extracts_to / SPECS[name].files[0].members[0].path
    content = member.read_bytes()
    member.write_bytes(content[:-1])
    with pytest.raises(InputError, match=r"has \d+ bytes instead of \d+; remove the folder"):
        load(name, tmp_path / "root")
    member.unlink()
    with pytest.raises(InputError, match="no such file; remove the folder"):
        load(name, tmp_path / "root")
    if name == "cifar10":
        member.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(InputError, match=r"data_batch_1\.bin: has checksum"):
            load(name, tmp_path / "root")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.ones((3, 1))}, r"has no array 'X'"),
        ({"X": np.zeros((32, 32, 3, 3), dtype=np.uint8)}, r"has no array 'y'"),
        ({"X": np.zeros((32, 32, 3, 3)), "y": np.ones((3, 1))}, r"X must be uint8 .*got float64 \(32, 32, 3, 3\)"),
        ({"X": np.zeros((32, 32, 3, 3), dtype=np.uint8), "y": np.ones((2, 1))}, "3 images but 2 labels"),
        (
            {"X": np.zeros((32, 32, 3, 3), dtype=np.uint8), "y": np.full((3, 1), 11)},
            r"labels must be 0 to 9 \(got 11\)",
        ),
    ],
)
def test_damaged_matlab_files(arrays, message, publish, expect, tmp_path) -> None:
    folder = put(publish("svhn"), tmp_path / "root")
    savemat(folder / "test_32x32.mat", arrays)
    expect("svhn", folder)
    with pytest.raises(InputError, match=rf"test_32x32\.mat: .*{message}"):
        load("svhn", tmp_path / "root")


@pytest.mark.parametrize("keep", [0, 50, 200, 3000])
def test_truncated_matlab_files(keep, publish, expect, tmp_path) -> None:
    folder = put(publish("svhn"), tmp_path / "root")
    path = folder / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:keep])
    expect("svhn", folder)
    with pytest.raises(InputError, match=r"train_32x32\.mat: "):
        load("svhn", tmp_path / "root")


def test_damaged_medmnist_files(publish, expect, tmp_path) -> None:
    folder = put(publish("tissuemnist"), tmp_path / "root")
    path = folder / "tissuemnist.npz"
    with np.load(path) as stored:
        good = dict(stored)

    def load_with(**changes: np.ndarray | None) -> None:
        np.savez(path, **{name: array for name, array in {**good, **changes}.items() if array is not None})
        expect("tissuemnist", folder)
        load("tissuemnist", tmp_path / "root")

    load_with()
    with pytest.raises(InputError, match=r"tissuemnist\.npz: has no array 'val_images'; it has "):
        load_with(val_images=None)
    with pytest.raises(InputError, match=r"labels must be 0 to 7 \(got 8\)"):
        load_with(val_labels=np.full((9, 1), 8))
    with pytest.raises(InputError, match=r"must have the same type and shape .*got torch.float32"):
        load_with(train_images=np.zeros((9, 28, 28)))
    with pytest.raises(
        InputError, match=r"training images must be uint8 \(1, 28, 28\) \(got torch.uint8 \(1, 32, 32\)\)"
    ):
        load_with(train_images=np.zeros((9, 32, 32), dtype=np.uint8), val_images=np.zeros((9, 32, 32), dtype=np.uint8))
    path.write_bytes(path.read_bytes()[:1000])
    expect("tissuemnist", folder)
    with pytest.raises(InputError, match=r"tissuemnist\.npz: must be an \.npz file .*got a damaged zip archive"):
        load("tissuemnist", tmp_path / "root")


def test_damaged_cinic_images(publish, expect, tmp_path) -> None:
    published = publish("cinic10")
    folder = put(published, tmp_path / "root")

    def load_with(name: str, content: bytes) -> None:
        shutil.rmtree(folder / "CINIC-10", ignore_errors=True)
        members = {}
        for part, (images, labels) in (("train", published.train), ("test", published.test)):
            for index, (image, label) in enumerate(zip(images, labels, strict=True)):
                members[f"{part}/class{label}/{index:04}.png"] = encoded(image)
        write_tar(folder / "CINIC-10.tar.gz", {**members, name: content})
        expect("cinic10", folder)
        load("cinic10", tmp_path / "root")

    with pytest.raises(InputError, match=r"train/class0/0001\.png: is damaged"):
        load_with("train/class0/0001.png", encoded(published.train[0][1])[:-1000])
    with pytest.raises(InputError, match=r"train/class0/notes\.txt: cannot be read as an image"):
        load_with("train/class0/notes.txt", b"hello")
    with pytest.raises(
        InputError, match=r"train/class0/0001\.png: must have the size of the first image, 32 x 32 \(got 16 x 16\)"
    ):
        load_with("train/class0/0001.png", encoded(published.train[0][1][:, :16, :16]))
    with pytest.raises(InputError, match=r"must have one folder for each of 10 classes \(got 11\)"):
        load_with("train/other/0001.png", encoded(published.train[0][0]))
    with pytest.raises(InputError, match=r"must have 20 training images \(got 21\)"):
        load_with("train/class0/extra.png", encoded(published.train[0][0]))
