"""A user's own data: arrays in an .npz file."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsol.config.tables import DataSettings
from fedsol.data.arrays import channel_statistics
from fedsol.data.own import load_own
from fedsol.data.readers import stratified_test_mask
from fedsol.errors import InputError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (12, 6, 5), dtype=np.uint8)
COLOR = RNG.integers(0, 256, (12, 3, 6, 5), dtype=np.uint8)
LABELS = np.arange(12) % 3


def own(source: str, **settings):
    return load_own(DataSettings(name=source, **settings))


def arrays(**changes):
    """Good arrays with changes; None leaves an array out."""
    good = {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:6], "y_test": LABELS[:6]}
    return {name: array for name, array in {**good, **changes}.items() if array is not None}


@pytest.fixture
def npz(tmp_path):
    def save(**changes) -> str:
        np.savez(tmp_path / "own.npz", **arrays(**changes))
        return str(tmp_path / "own.npz")

    return save


def test_gray_images(npz) -> None:
    dataset = own(npz())
    assert (dataset.name, dataset.classes, dataset.input_shape) == ("own", 3, (1, 6, 5))
    assert np.array_equal(dataset.train.inputs[:, 0].numpy(), IMAGES)
    assert dataset.train.clients is None
    assert dataset.mean == pytest.approx([(IMAGES / 255).mean()])
    assert dataset.std == pytest.approx([(IMAGES / 255).std()])


@pytest.mark.parametrize("last", [False, True])
def test_color_images_in_either_order(npz, last) -> None:
    images = COLOR.transpose(0, 2, 3, 1) if last else COLOR
    dataset = own(npz(x_train=images, x_test=images[:6]))
    assert np.array_equal(dataset.train.inputs.numpy(), COLOR)
    assert dataset.mean == pytest.approx((COLOR / 255).mean(axis=(0, 2, 3)))
    assert dataset.std == pytest.approx((COLOR / 255).std(axis=(0, 2, 3)))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_features_are_used_as_they_are(npz, kind) -> None:
    features = RNG.normal(size=(12, 4)).astype(kind)
    dataset = own(npz(x_train=features, x_test=features[:6]))
    assert dataset.train.inputs.dtype == torch.float32
    assert np.array_equal(dataset.train.inputs.numpy(), features.astype(np.float32))
    assert dataset.input_shape == (4,)


def test_labels_and_clients_are_numbered_in_sorted_order(npz) -> None:
    names = np.array(["dog", "cat", "eel"])[LABELS]
    clients = np.array([f"hospital {i}" for i in (30, 10, 20)] * 4)
    dataset = own(npz(y_train=names, y_test=names[:6], clients_train=clients))
    assert dataset.train.labels.tolist() == [1, 0, 2] * 4
    assert dataset.test.labels.tolist() == [1, 0, 2] * 2
    assert dataset.train.clients.tolist() == [2, 0, 1] * 4
    dataset = own(npz(y_train=LABELS * 10 - 5, y_test=(LABELS * 10 - 5)[:6, None], clients_train=LABELS + 7))
    assert dataset.train.labels.tolist() == dataset.train.clients.tolist() == LABELS.tolist()


def test_medmnist_names(tmp_path) -> None:
    parts = {}
    for name, count in (("train", 6), ("val", 3), ("test", 3)):
        parts |= {f"{name}_images": IMAGES[:count], f"{name}_labels": LABELS[:count, None].astype(np.uint8)}
    np.savez(tmp_path / "m.npz", **parts)
    dataset = own(str(tmp_path / "m.npz"))
    assert (len(dataset.train), len(dataset.test)) == (9, 3)


def test_arrays_of_clients_alone_are_no_samples(tmp_path) -> None:
    np.savez(tmp_path / "own.npz", clients_train=LABELS)
    with pytest.raises(InputError, match=r"own\.npz: has no samples$"):
        own(str(tmp_path / "own.npz"))


def test_medmnist_names_without_a_validation_set(tmp_path) -> None:
    parts = {f"{part}_images": IMAGES[:3] for part in ("train", "test")}
    np.savez(tmp_path / "m.npz", **parts, **{f"{part}_labels": LABELS[:3] for part in ("train", "test")})
    dataset = own(str(tmp_path / "m.npz"))
    assert (len(dataset.train), len(dataset.test)) == (3, 3)


def test_a_test_set_is_held_out_stratified_and_always_the_same(npz) -> None:
    source = npz(x_test=None, y_test=None, clients_train=np.arange(12))
    first, second = (own(source, test_fraction=0.25) for _ in range(2))
    assert torch.bincount(first.test.labels).tolist() == [1, 1, 1]
    assert torch.equal(first.test.inputs, second.test.inputs)
    assert sorted(first.train.clients.tolist()) == list(range(9))
    assert first.test.clients is None


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.data())
def test_a_stratified_test_set(labels, data) -> None:
    count = data.draw(st.integers(0, len(labels)))
    labels = np.array(labels)
    chosen = stratified_test_mask(labels, count)
    assert chosen.sum() == count
    for label in set(labels.tolist()):
        share = (labels == label).sum() * count / len(labels)
        assert abs((labels[chosen] == label).sum() - share) <= 1


def test_a_channel_that_never_varies_is_only_shifted() -> None:
    assert channel_statistics(torch.full((2, 1, 3, 3), 51, dtype=torch.uint8)) == ((0.2,), (1.0,))


NOT_FINITE = np.full((12, 4), np.nan)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None, "y_test": None}, "has no test samples; add them, or set data.test_fraction"),
        ({"y_test": None}, "has no array 'y_test'; it has x_test, x_train, y_train"),
        ({"client_train": LABELS}, "unknown array 'client_train'; allowed: x_train"),
        ({"y_train": LABELS[:5]}, "x_train has 12 samples but y_train has 5"),
        ({"clients_train": LABELS[:5]}, "x_train has 12 samples but clients_train has 5"),
        ({"y_train": LABELS / 2}, r"y_train must be integers or strings .*\(got float64 of shape \(12,\)\)"),
        ({"y_train": np.stack([LABELS, LABELS], 1)}, r"y_train must be .*\(got int64 of shape \(12, 2\)\)"),
        ({"y_test": LABELS[:6] + 7}, "the test label 7 does not occur among the training labels"),
        ({"y_test": LABELS[:6].astype(str)}, "must both be integers or both be strings"),
        ({"x_train": IMAGES.astype(np.int32)}, r"x_train must be uint8 .*got int32 of shape"),
        ({"x_train": IMAGES[:, 0]}, r"uint8 inputs must be images .*\(got shape \(12, 5\)\)"),
        ({"x_train": np.zeros((12, 7, 6, 5), np.uint8)}, r"must be images .*\(12, 7, 6, 5\)"),
        ({"x_train": np.zeros((12, 3, 6, 3), np.uint8)}, r"must be images .*\(12, 3, 6, 3\)"),
        ({"x_train": LABELS.astype(float)}, r"x_train must have the shape \(N, …\) .*\(got \(12,\)\)"),
        ({"x_train": IMAGES[:0], "y_train": LABELS[:0]}, "and not be empty"),
        ({"x_train": IMAGES[:, :4]}, r"\(got torch.uint8 \(1, 4, 5\) and torch.uint8 \(1, 6, 5\)\)"),
        (
            {"x_train": NOT_FINITE, "x_test": NOT_FINITE[:6]},
            r"x_train must be finite .*nan or inf, in \d+ of 12 samples, the first at",
        ),
        ({"x_train": np.array([{}] * 12)}, "x_train has Python objects; save an array of numbers"),
    ],
)
def test_bad_arrays_are_named(changes, message, npz) -> None:
    source = npz(**changes)
    with pytest.raises(InputError, match=message) as raised:
        own(source)
    assert source in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_fraction": 0.2}, r"data.test_fraction: must not be set, as .* has its own test samples \(got 0.2\)"),
        ({"image_size": 8}, "data.image_size: only applies to image folders"),
        ({"layout": "client/class"}, "data.layout: only applies to image folders"),
    ],
)
def test_bad_options_are_named(options, message, npz) -> None:
    with pytest.raises(InputError, match=message):
        own(npz(), **options)


def test_a_test_fraction_must_leave_samples(npz) -> None:
    with pytest.raises(InputError, match=r"data.test_fraction: must leave samples for both .*\(got 0.01\)"):
        own(npz(x_test=None, y_test=None), test_fraction=0.01)


def test_files_that_are_no_npz(tmp_path) -> None:
    path = tmp_path / "own.npz"
    for content in (b"", b"hello", b"PK\x03\x04 cut"):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"own\.npz: must be an \.npz file"):
            own(str(path))
    np.save(tmp_path / "one.npy", IMAGES)
    (tmp_path / "one.npy").rename(path)
    with pytest.raises(InputError, match="got a single array"):
        own(str(path))
    np.savez(path)
    with pytest.raises(InputError, match="has no arrays; allowed: x_train"):
        own(str(path))
    with pytest.raises(InputError, match=r"none\.npz: no such file"):
        own(str(tmp_path / "none.npz"))
    with pytest.raises(InputError, match=r"data.name: must be a dataset's name, .*got 'nothing'"):
        own("nothing")
    with pytest.raises(InputError, match=r"a dataset's name \(did you mean 'fashion-small'\?\), .*got 'fasion-small'"):
        own("fasion-small")


def test_names_of_classes_and_clients(npz) -> None:
    names = np.array(["no", "yes", "maybe"])[LABELS]
    dataset = own(npz(y_train=names, y_test=names[:6], clients_train=LABELS + 5))
    assert dataset.class_names == ("maybe", "no", "yes")
    assert dataset.client_names == ("5", "6", "7")
    assert dataset.train.clients.tolist() == LABELS.tolist()
    plain = own(npz(clients_train=LABELS))
    assert plain.class_names == plain.client_names == ()
