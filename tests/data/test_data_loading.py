"""Datasets by name, read from small files in the publishers' formats."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsol.data import readers
from fedsol.data.batches import normalize
from fedsol.data.catalog import SPECS, load
from fedsol.errors import InputError
from tests.support.small_datasets import MAKERS, put
from tools.fashion_small import first_of_each_class, subset


@pytest.mark.parametrize("name", MAKERS)
def test_every_format_is_read(name, publish, tmp_path) -> None:
    published = publish(name)
    put(published, tmp_path / "root")
    dataset = load(name, tmp_path / "root")
    for split, (images, labels) in ((dataset.train, published.train), (dataset.test, published.test)):
        assert split.inputs.dtype == torch.uint8
        assert np.array_equal(split.inputs.numpy(), images)
        assert split.labels.dtype == torch.int64
        assert split.labels.tolist() == labels.tolist()
    assert dataset.input_shape == (3, *published.spec.shape[1:])
    assert (dataset.name, dataset.classes) == (name, published.spec.classes)
    assert dataset.augmentation == published.spec.augmentation


@pytest.mark.parametrize("name", MAKERS)
def test_a_dataset_is_loaded_again_from_what_is_there(name, publish, tmp_path) -> None:
    published = publish(name)
    put(published, tmp_path / "root")
    first, second = (load(name, tmp_path / "root") for _ in range(2))
    assert torch.equal(first.train.inputs, second.train.inputs)


@pytest.mark.parametrize("name", MAKERS)
def test_missing_files_are_named_with_where_to_get_them(name, publish, tmp_path) -> None:
    spec = publish(name).spec
    path = tmp_path / "root" / name / spec.files[0].name
    with pytest.raises(InputError) as raised:
        load(name, tmp_path / "root")
    assert str(path) in str(raised.value)
    assert spec.files[0].urls[0] in str(raised.value)
    assert f"fedsol data fetch {name}" in str(raised.value)


def test_digits_are_embedded_and_split_for_ever(tmp_path) -> None:
    dataset = load("digits", tmp_path / "nothing is written")
    assert (len(dataset.train), len(dataset.test)) == (1437, 360)
    assert torch.bincount(dataset.test.labels).tolist() == [36, 36, 36, 36, 37, 36, 36, 36, 35, 36]
    assert dataset.test.labels[:12].tolist() == [2, 4, 7, 0, 6, 8, 9, 5, 1, 0, 2, 3]
    assert [split.inputs.long().sum().item() for split in (dataset.train, dataset.test)] == [6728970, 1696800]
    assert not list(tmp_path.iterdir())


def test_digits_are_parsed_once_and_copied_for_each_use(tmp_path) -> None:
    readers._parse_digits.cache_clear()
    first, second = load("digits", tmp_path), load("digits", tmp_path)
    assert readers._parse_digits.cache_info().misses == 1
    expected = second.train.inputs.clone()
    first.train.inputs.zero_()
    first.train.labels.zero_()
    assert torch.equal(second.train.inputs, expected)
    assert torch.equal(load("digits", tmp_path).train.inputs, expected)
    assert load("digits", tmp_path).train.labels.unique().tolist() == list(range(10))


def test_a_model_sees_digits_between_zero_and_one(tmp_path) -> None:
    from sklearn.datasets import load_digits

    dataset = load("digits", tmp_path)
    seen = torch.cat([normalize(split.inputs, dataset) for split in (dataset.train, dataset.test)])
    values = load_digits().images / 16
    assert seen.shape == (1797, 1, 8, 8)
    assert torch.allclose(seen.sum(), torch.tensor(values.sum(), dtype=torch.float32))
    assert seen.min() == 0
    assert seen.max() == pytest.approx(1)


def test_the_small_fashion_images_ship_with_fedsol(tmp_path) -> None:
    dataset = load("fashion-small", tmp_path / "nothing is written")
    assert [torch.bincount(split.labels).unique().tolist() for split in (dataset.train, dataset.test)] == [[500], [100]]
    assert dataset.train.labels[:8].tolist() == [9, 0, 0, 3, 0, 2, 7, 2]  # as in the publisher's file
    seen = normalize(dataset.train.inputs, dataset)
    assert seen.shape == (5000, 1, 14, 14)
    assert seen.mean() == pytest.approx(0, abs=1e-3)
    assert seen.std() == pytest.approx(1, abs=1e-3)
    assert not list(tmp_path.iterdir())


def test_the_small_fashion_images_are_means_of_squares_of_the_first_of_each_class(publish, tmp_path) -> None:
    published = publish("fashion-mnist")
    images, labels = published.train
    made = subset(put(published, tmp_path / "root"))
    assert made["y_train"].tolist() == labels.tolist()
    first = images[0, 0].astype(float)
    expected = [np.floor(first[y : y + 2, x : x + 2].mean() + 0.5) for y, x in ((0, 0), (12, 14), (26, 26))]
    assert [made["x_train"][0, y, x] for y, x in ((0, 0), (6, 7), (13, 13))] == expected
    assert first_of_each_class(np.array([1, 0, 1, 1, 0]), 2).tolist() == [0, 1, 2, 4]


def test_cinic_images_are_memory_mapped_and_valid_is_left_out(publish, tmp_path) -> None:
    folder = put(publish("cinic10"), tmp_path / "root")
    load("cinic10", tmp_path / "root")
    assert not (folder / "CINIC-10" / "valid").exists()
    assert len(list((folder / ".fedsol-cache").iterdir())) == 2


def test_imagenet_is_read_from_the_users_folder(tmp_path, write_images) -> None:
    rng = np.random.default_rng(0)
    folder = tmp_path / "imagenet100"
    for part in ("train", "val"):
        shapes = {f"n{number:03}/{number}.JPEG": (3, 20 + number % 7, 24) for number in range(100)}
        write_images(folder / part, {name: rng.integers(0, 256, s, dtype=np.uint8) for name, s in shapes.items()})
    dataset = load("imagenet100", tmp_path, image_size=16)
    assert dataset.input_shape == (3, 16, 16)
    assert dataset.train.labels.tolist() == list(range(100))
    assert load("imagenet100", tmp_path).input_shape == (3, 64, 64)
    (folder / "val" / "n099").rename(folder / "val" / "other")
    with pytest.raises(InputError, match=r"train and val must have the same classes.*'n099'"):
        load("imagenet100", tmp_path)


def test_imagenet_needs_its_folders(tmp_path) -> None:
    with pytest.raises(InputError, match=r"imagenet100/train: no such folder; .*val/<class>"):
        load("imagenet100", tmp_path)


def test_image_size_is_only_for_images_of_any_size(tmp_path) -> None:
    with pytest.raises(InputError, match=r"data.image_size: must not be set for cifar10"):
        load("cifar10", tmp_path, image_size=16)
    with pytest.raises(InputError, match=r"data.image_size: must be at least 1"):
        load("imagenet100", tmp_path, image_size=0)


@pytest.mark.parametrize("name", MAKERS)
def test_a_file_with_another_checksum_is_refused(name, publish, tmp_path) -> None:
    published = publish(name)
    target = put(published, tmp_path / "root")
    path = target / published.spec.files[-1].name
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(InputError, match=r"has checksum md5:\w+ instead of md5:\w+; delete it"):
        load(name, tmp_path / "root")


def test_the_wrong_number_of_images_is_refused(publish, tmp_path, monkeypatch) -> None:
    published = publish("mnist")
    put(published, tmp_path / "root")
    monkeypatch.setitem(SPECS, "mnist", replace(published.spec, train_size=60_000))
    with pytest.raises(InputError, match=r"must have 60000 training images \(got 20\)"):
        load("mnist", tmp_path / "root")


def test_a_sample_of_medmnist_is_not_taken_for_the_whole(publish, tmp_path) -> None:
    published = publish("pathmnist")
    folder = tmp_path / "root" / "pathmnist"
    folder.mkdir(parents=True)
    shutil.copy(published.files[0], folder / "pathmnist_test718.npz")
    with pytest.raises(InputError, match=r"pathmnist\.npz is missing"):
        load("pathmnist", tmp_path / "root")
