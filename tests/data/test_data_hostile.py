"""Files that are not what their names say: one message that names the file and what is wrong with it."""

import os
import zipfile

import numpy as np
import pytest
from PIL import Image

from fedsol import InputError
from fedsol.config.tables import DataSettings
from fedsol.data import folders
from fedsol.data.catalog import load_dataset


def load(path, **settings):
    return load_dataset(DataSettings(name=str(path), test_fraction=0.5, **settings))


def encrypt(path):
    """Mark the members of an archive as encrypted, as a zip tool with a password does."""
    content = bytearray(path.read_bytes())
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = content.find(magic)
        while place >= 0:
            content[place + offset] |= 1
            place = content.find(magic, place + 1)
    path.write_bytes(bytes(content))


@pytest.fixture
def arrays(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, x_train=np.zeros((8, 5), np.float32), y_train=np.arange(8) % 2)
    return path


def test_an_encrypted_archive_is_called_encrypted(arrays):
    encrypt(arrays)
    with pytest.raises(InputError, match=r"own\.npz: is encrypted; save it without a password"):
        load(arrays)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"a,b\n1,2\n", "a text file"),
        (b"", "an empty file"),
        (b"\x80\x04pickled", "a pickle"),
        (b"\x1f\x8b\x08", "a gzip file"),
        (b"PK\x03\x04 cut off", "a damaged zip archive"),
        (b"\x00\xff\x00\xff", "another format"),
    ],
)
def test_a_file_that_is_no_archive_is_called_what_it_is(tmp_path, content, kind):
    (tmp_path / "own.npz").write_bytes(content)
    with pytest.raises(InputError, match=rf"own\.npz: must be an \.npz file .*got {kind}") as raised:
        load(tmp_path / "own.npz")
    assert "pickle=" not in str(raised.value)


def test_members_that_are_no_arrays_are_named(arrays):
    with zipfile.ZipFile(arrays, "a") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(InputError, match=r"own\.npz: 'notes.txt' is not an array"):
        load(arrays)


def test_features_that_overflow_are_counted(tmp_path):
    features = np.zeros((8, 3))
    features[2, 1] = features[5] = 1e300
    np.savez(tmp_path / "own.npz", x_train=features, y_train=np.arange(8) % 2)
    with pytest.raises(InputError, match=r"got 4 values that are nan or inf, in 2 of 8 samples, the first at \(2, 1\)"):
        load(tmp_path / "own.npz")


@pytest.fixture
def images(tmp_path):
    """Two classes of four gray images each."""
    for name in ("cat", "dog"):
        (tmp_path / "images" / "train" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("L", (8, 8), number * 20).save(tmp_path / "images" / "train" / name / f"{number}.png")
    return tmp_path / "images"


def test_an_image_that_vanishes_is_named(images, monkeypatch):
    listed = folders.list_images(images / "train", "class")
    listed[3].path.unlink()
    monkeypatch.setattr("fedsol.data.own.list_images", lambda *_: listed)
    with pytest.raises(InputError, match=r"3\.png: cannot be read: No such file"):
        load(images)
    monkeypatch.setattr(folders, "_cache_key", lambda *_: "key")
    with pytest.raises(InputError, match=r"3\.png: was removed while the folder was read"):
        load(images)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_names_that_are_no_utf8_are_fine(images):
    folder = os.fsencode(images / "train" / "cat")
    os.rename(os.path.join(folder, b"0.png"), os.path.join(folder, b"\xff.png"))  # noqa: PTH104, PTH118
    os.rename(folder, folder[:-3] + b"\xfe\xfd")  # noqa: PTH104
    assert load(images).classes == 2


def test_pixel_formats_that_pillow_refuses_are_damage(images, monkeypatch):
    def refuse(*_):
        raise NotImplementedError("Unimplemented pixel format 42")

    monkeypatch.setattr(Image.Image, "convert", refuse)
    with pytest.raises(InputError, match=r"0\.png: is damaged: Unimplemented pixel format 42"):
        load(images)
    monkeypatch.setattr(Image, "open", refuse)
    with pytest.raises(InputError, match=r"0\.png: cannot be read as an image"):
        load(images)


@pytest.mark.parametrize("limit", [63, 31])  # a warning of Pillow, and its error
def test_a_decompression_bomb_is_refused_with_the_limit(images, monkeypatch, limit):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(InputError, match=rf"0\.png: has more than {limit} pixels, the limit against decompression"):
        load(images)


def test_images_that_do_not_fit_on_the_disk_are_refused_with_their_size(images, monkeypatch):
    monkeypatch.setattr(folders.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100}))
    with pytest.raises(InputError, match=r"decoded images take 0\.0 GB, and 0\.0 GB are free; set data\.cache"):
        load(images)


def test_a_narrow_image_does_not_explode_when_it_is_resized(images):
    Image.new("L", (20_000, 1)).save(images / "train" / "cat" / "0.png")
    with pytest.raises(
        InputError, match=r"data\.image_size: .*0\.png resized to 4000 would have 80,000,000 x 4,000 pix"
    ):
        load(images, image_size=4000)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipes_and_broken_links_are_no_images(images):
    os.mkfifo(images / "train" / "cat" / "pipe.png")
    with pytest.raises(InputError, match=r"pipe\.png: must be an image \(got a broken link, a pipe or a device\)"):
        load(images)


@pytest.mark.parametrize("name", ["x" * 5000, "~nobody-of-this-name/data", "a\0b.npz"])
def test_impossible_paths_are_refused(name):
    with pytest.raises(InputError, match=r"data\.name: "):
        load(name)
