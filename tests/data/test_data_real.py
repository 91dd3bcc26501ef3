"""The real CIFAR-10 and MNIST, in full, where a copy of them is on this machine."""

import pytest
import torch

from fedsol.config.tables import DataSettings
from fedsol.data.arrays import channel_statistics
from fedsol.data.catalog import SPECS, load, verify
from fedsol.data.own import load_own
from fedsol.errors import InputError


def test_cifar10(real_data) -> None:
    results = verify("cifar10", real_data)
    assert [result.status for result in results] == ["ok"] * 6
    assert all(result.detail.startswith("md5:") for result in results)
    dataset = load("cifar10", real_data)
    assert torch.bincount(dataset.train.labels).tolist() == [5000] * 10
    assert torch.bincount(dataset.test.labels).tolist() == [1000] * 10
    mean, std = channel_statistics(dataset.train.inputs)
    assert mean == pytest.approx(SPECS["cifar10"].mean, abs=1e-6)
    assert std == pytest.approx(SPECS["cifar10"].std, abs=1e-6)


def test_mnist(real_data) -> None:
    dataset = load("mnist", real_data)
    assert (len(dataset.train), len(dataset.test)) == (60_000, 10_000)
    assert dataset.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    mean, std = channel_statistics(dataset.train.inputs)
    assert mean == pytest.approx((0.1307,), abs=1e-4)
    assert std == pytest.approx((0.3081,), abs=1e-4)


def test_a_sample_of_pathmnist_is_usable_as_own_data(real_data) -> None:
    with pytest.raises(InputError, match=r"pathmnist\.npz is missing"):
        load("pathmnist", real_data)
    source = str(real_data / "pathmnist" / "pathmnist_test718.npz")
    with pytest.raises(InputError, match=r"has no training samples; add them, or set data.test_fraction"):
        load_own(DataSettings(name=source))
    dataset = load_own(DataSettings(name=source, test_fraction=0.25))
    assert (len(dataset.train), len(dataset.test), dataset.classes) == (538, 180, 9)
    assert dataset.input_shape == (3, 28, 28)
