"""A user's own data: folders of images."""

from pathlib import Path

import numpy as np
import pytest

from fedsol.config.tables import DataSettings
from fedsol.data.own import load_own
from fedsol.errors import InputError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (12, 6, 5), dtype=np.uint8)
COLOR = RNG.integers(0, 256, (12, 3, 6, 5), dtype=np.uint8)


def own(source: str, **settings):
    return load_own(DataSettings(name=source, **settings))


@pytest.fixture
def folder(tmp_path, write_images) -> Path:
    """A folder of 5 x 6 color images: two classes, four for training and two for testing."""
    images = {f"train/{name}/{i}.png": COLOR[2 * k + i] for k, name in enumerate(["cat", "dog"]) for i in (0, 1)}
    images |= {"test/cat/0.png": COLOR[4], "test/dog/0.png": COLOR[5]}
    write_images(tmp_path / "pictures", images)
    return tmp_path / "pictures"


def test_a_folder_of_images(folder) -> None:
    (folder / "train" / "cat" / ".DS_Store").write_bytes(b"hidden files are skipped")
    dataset = own(str(folder))
    assert (dataset.name, dataset.classes, dataset.input_shape) == ("pictures", 2, (3, 6, 5))
    assert np.array_equal(dataset.train.inputs.numpy(), COLOR[:4])
    assert np.array_equal(dataset.test.inputs.numpy(), COLOR[4:6])
    assert dataset.train.labels.tolist() == [0, 0, 1, 1]


def test_images_are_decoded_once_until_they_change(folder, write_images, monkeypatch) -> None:
    from fedsol.data import folders

    decoded: list[str] = []
    original = folders._decode_image
    monkeypatch.setattr(
        folders, "_decode_image", lambda path, *rest, **named: decoded.append(path) or original(path, *rest, **named)
    )
    own(str(folder))
    count = len(decoded)
    again = own(str(folder))
    assert len(decoded) == count
    again.train.inputs[:] = 0  # private to this process
    write_images(folder, {"train/cat/new.png": COLOR[9]})
    assert np.array_equal(own(str(folder)).train.inputs[2].numpy(), COLOR[9])
    assert [path.suffix for path in (folder / ".fedsol-cache").iterdir()] == [".npy", ".npy"]


def test_a_damaged_cache_is_named(folder) -> None:
    own(str(folder))
    (cached,) = (folder / ".fedsol-cache").iterdir()
    cached.write_bytes(cached.read_bytes()[:100])
    with pytest.raises(InputError, match=r"\.npy: the cache file is damaged"):
        own(str(folder))


def test_the_cache_can_be_elsewhere(folder, tmp_path) -> None:
    own(str(folder), cache=str(tmp_path / "cache" / "deep"))
    assert not (folder / ".fedsol-cache").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot store decoded images .* set data.cache"):
        own(str(folder), cache=str(tmp_path / "file"))


def test_clients_of_their_own(tmp_path, write_images) -> None:
    images = {"train/ward b/cat/0.png": COLOR[0], "train/ward b/dog/0.png": COLOR[1]}
    images |= {"train/ward a/dog/0.png": COLOR[2], "test/cat/0.png": COLOR[3]}
    write_images(tmp_path / "wards", images)
    dataset = own(str(tmp_path / "wards"), layout="client/class")
    assert dataset.train.clients.tolist() == [0, 1, 1]
    assert dataset.train.labels.tolist() == [1, 0, 1]
    assert dataset.test.clients is None
    with pytest.raises(InputError, match=r"must be an image \(got a folder\); check data.layout"):
        own(str(tmp_path / "wards"))


def test_gray_folders_stay_gray_and_mixed_ones_become_color(tmp_path, write_images) -> None:
    gray = {"train/a/0.png": IMAGES[0][None], "train/b/0.png": IMAGES[1][None], "test/a/0.png": IMAGES[2][None]}
    write_images(tmp_path / "gray", gray)
    assert own(str(tmp_path / "gray")).input_shape == (1, 6, 5)
    write_images(tmp_path / "gray", {"test/b/0.png": COLOR[0]})
    assert own(str(tmp_path / "gray")).input_shape == (3, 6, 5)
    assert own(str(tmp_path / "gray"), channels=1).input_shape == (1, 6, 5)


def test_images_of_many_sizes_are_made_square(tmp_path, write_images) -> None:
    half = np.zeros((3, 40, 80), dtype=np.uint8)
    half[:, :, 40:] = 255
    tall = np.full((3, 50, 30), 7, dtype=np.uint8)
    images = {"train/a/0.png": half, "train/b/0.jpg": tall, "test/a/0.png": half}
    write_images(tmp_path / "sizes", images)
    with pytest.raises(InputError, match=r"0\.jpg: must have the size of the first image, 80 x 40 \(got 30 x 50\)"):
        own(str(tmp_path / "sizes"))
    dataset = own(str(tmp_path / "sizes"), image_size=20)
    assert dataset.input_shape == (3, 20, 20)
    assert own(str(tmp_path / "sizes"), image_size=3).input_shape == (3, 3, 3)
    assert dataset.train.inputs[0, 0, :, :9].max() == 0
    assert dataset.train.inputs[0, 0, :, 11:].min() == 255
    assert dataset.train.inputs[1].float().mean() == pytest.approx(7, abs=1)


def test_a_part_of_the_training_images_is_held_out(folder) -> None:
    with pytest.raises(InputError, match=r"test_fraction: must not be set, as .* has a folder 'test' \(got 0\.5\)"):
        own(str(folder), test_fraction=0.5)
    (folder / "test").rename(folder / "other")
    with pytest.raises(InputError, match=r"has no folder 'test'; add it, or set data.test_fraction"):
        own(str(folder))
    dataset = own(str(folder), test_fraction=0.5)
    assert (dataset.train.labels.tolist(), dataset.test.labels.tolist()) == ([0, 1], [0, 1])


def damage_nothing_left(folder: Path) -> None:
    (folder / "train").rename(folder / "training")


def damage_empty_class(folder: Path) -> None:
    (folder / "train" / "eel").mkdir()


def damage_empty_train(folder: Path) -> None:
    (folder / "train").rename(folder / "training")
    (folder / "train").mkdir()


def damage_text(folder: Path) -> None:
    (folder / "train" / "dog" / "notes.txt").write_text("hello")


def damage_stray(folder: Path) -> None:
    (folder / "train" / "README").write_text("hello")


def damage_cut(folder: Path) -> None:
    path = folder / "train" / "dog" / "1.png"
    path.write_bytes(path.read_bytes()[:60])


def damage_deep(folder: Path) -> None:
    from PIL import Image

    Image.fromarray(np.zeros((6, 5), dtype=np.uint16)).save(folder / "train" / "dog" / "1.png")


def damage_other_class(folder: Path) -> None:
    (folder / "test" / "dog").rename(folder / "test" / "wolf")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_nothing_left, "has no folder 'train'"),
        (damage_empty_class, "train/eel: has no images"),
        (damage_empty_train, "train: must have one folder per class"),
        (damage_text, r"train/dog/notes\.txt: cannot be read as an image"),
        (damage_stray, "train/README: must be a folder of one class"),
        (damage_cut, r"train/dog/1\.png: (is damaged|cannot be read as an image)"),
        (damage_deep, r"train/dog/1\.png: must have 8 bits per channel \(got the mode I;16\)"),
        (damage_other_class, "the test label wolf does not occur"),
    ],
)
def test_bad_folders_are_named(damage, message, folder) -> None:
    damage(folder)
    with pytest.raises(InputError, match=message):
        own(str(folder))
    assert not list(folder.glob(".fedsol-cache/.*")), "no unfinished cache is left"
