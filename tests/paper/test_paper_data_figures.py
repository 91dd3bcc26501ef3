"""The paper's figures of the data itself, on small data of the same form."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedsol.data.types import Dataset, Split
from fedsol.errors import InputError
from fedsol.paper import data_figures
from fedsol.paper.recipe import Folders
from fedsol.paper.registry import find_recipe


@pytest.fixture
def labels(monkeypatch):
    """A hundred samples of each of ten classes in the place of CIFAR-10."""
    values = torch.arange(10).repeat_interleave(100)
    split = Split(torch.zeros(1000, 3, 2, 2, dtype=torch.uint8), values)
    dataset = Dataset("cifar10", split, split, 10, (0.0,), (1.0,))
    monkeypatch.setattr(data_figures, "load_dataset", lambda settings: dataset)
    monkeypatch.setattr(data_figures, "check_data", lambda names, root: None)


def test_partitions_among_ten_clients(labels, tmp_path):
    recipe = find_recipe("partitions")
    cells = recipe.table.cells
    ours = recipe.table.compute(cells, tmp_path)
    assert len(cells) == len(ours) == 8 * 4
    for level in ("s = 2", "s = 10"):
        assert ours["Sharding", level, "samples, min"].mean == ours["Sharding", level, "samples, max"].mean == 100
    # A shard of 50 lies within one class, so two shards hold one class or two.
    assert ours["Sharding", "s = 2", "classes, max"].mean == 2
    assert ours["LDA", "alpha = 0.05", "samples, min"].mean < 100 < ours["LDA", "alpha = 0.05", "samples, max"].mean
    written = recipe.draw(recipe.table, ours, Folders(tmp_path, tmp_path / "out")).files
    assert [path.name for path in written] == ["partitions.png", "partitions.pdf"]
    some = {key: value for key, value in ours.items() if key[1] == "s = 2"}
    (smaller, _) = recipe.draw(recipe.table, some, Folders(tmp_path, tmp_path / "some")).files
    assert smaller.stat().st_size < written[0].stat().st_size


def test_partitions_without_the_data(tmp_path):
    recipe = find_recipe("partitions")
    with pytest.raises(InputError, match=r"cifar10/cifar-10-binary.tar.gz is missing"):
        recipe.table.compute(recipe.table.cells, tmp_path)


def make_sample(root: Path, dataset: str, shape: tuple[int, ...], classes: int) -> Path:
    folder = root / dataset
    folder.mkdir(parents=True)
    images = np.random.default_rng(0).integers(256, size=(3 * classes, *shape), dtype=np.uint8)
    labels = np.arange(3 * classes, dtype=np.uint8)[:, None] % classes
    path = folder / "some.npz"
    np.savez(path, test_images=images, test_labels=labels)
    return path


def test_medical_images_of_a_sample(tmp_path):
    make_sample(tmp_path, "pathmnist", (28, 28, 3), 9)
    make_sample(tmp_path, "tissuemnist", (28, 28), 8)
    recipe = find_recipe("medical")
    cells = recipe.table.cells
    ours = recipe.table.compute(cells, tmp_path)
    assert [ours[cell.key].mean for cell in cells] == [27, 9, 24, 8]
    assert "some.npz, as pathmnist.npz is missing" in ours["", "PathMNIST", "images"].differs[0]
    written = recipe.draw(recipe.table, ours, Folders(tmp_path, tmp_path / "out")).files
    assert [path.name for path in written] == ["medical.png", "medical.pdf"]


def test_medical_images_that_are_missing_are_named(tmp_path):
    make_sample(tmp_path, "pathmnist", (28, 28, 3), 9)
    recipe = find_recipe("medical")
    with pytest.raises(InputError) as caught:
        recipe.table.compute(recipe.table.cells, tmp_path)
    assert f"tissuemnist: {tmp_path}/tissuemnist/tissuemnist.npz is missing" in str(caught.value)
    assert "Available: pathmnist: --only dataset=pathmnist" in str(caught.value)
    assert "pathmnist.npz is missing" not in str(caught.value)


def test_a_file_without_test_images_is_no_sample(tmp_path):
    (tmp_path / "pathmnist").mkdir()
    np.savez(tmp_path / "pathmnist" / "other.npz", images=np.zeros(3))
    assert data_figures.medical_file("pathmnist", tmp_path) is None
