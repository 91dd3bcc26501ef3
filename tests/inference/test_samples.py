"""Samples for a trained model, in every form that training data may have."""

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

from fedsol import InputError, Split
from fedsol.data.description import DataDescription, InputTensor
from fedsol.data.types import Category, Columns, Number
from fedsol.inference.samples import labels_of, read_samples

COLOR = DataDescription("photos", "images", {"inputs": InputTensor("uint8", (3, 4, 6))}, 2, ("cat", "dog"), channels=3)
GRAY = DataDescription("scans", "images", {"inputs": InputTensor("uint8", (1, 4, 6))}, 2)
VECTORS = DataDescription("sensors", "features", {"inputs": InputTensor("float32", (3,))}, 3)


def photo(shade, size=(6, 4), mode="RGB"):
    return Image.new(mode, size, shade if mode == "L" else (shade, 0, 0))


@pytest.fixture
def folder(tmp_path):
    for name, shade in (("cat", 10), ("dog", 20)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        photo(shade).save(tmp_path / "photos" / name / "1.png")
    return tmp_path / "photos"


def refused(source, data):
    with pytest.raises(InputError) as error:
        read_samples(source, data)
    return str(error.value)


@pytest.mark.parametrize("shape", [(2, 3, 4, 6), (2, 4, 6, 3)])
def test_channels_come_first_or_last(shape):
    array = np.zeros(shape, np.uint8)
    array[(0, 1, 2, 3) if shape[1] == 3 else (0, 2, 3, 1)] = 7
    samples = read_samples(array, COLOR)
    assert samples.inputs.shape == (2, 3, 4, 6)
    assert samples.inputs[0, 1, 2, 3] == 7
    assert samples.names == ("0", "1")
    assert samples.labels is None


def test_grayscale_images_need_no_channel():
    assert read_samples(np.zeros((5, 4, 6), np.uint8), GRAY).inputs.shape == (5, 1, 4, 6)


@pytest.mark.parametrize(
    "source",
    [np.ones((2, 3)), np.ones((2, 3), np.float16), torch.ones(2, 3), [[1.0, 1, 1], [1, 1, 1]]],
    ids=["double", "half", "tensor", "list"],
)
def test_floats_of_any_width_are_features(source):
    inputs = read_samples(source, VECTORS).inputs
    assert inputs.dtype == torch.float32
    assert torch.equal(inputs, torch.ones(2, 3))


@pytest.mark.parametrize("source", [photo(9), [photo(9)], np.asarray(photo(9))[None]], ids=["image", "images", "array"])
def test_images_of_pillow(source):
    assert read_samples(source, COLOR).inputs[0, :, 0, 0].tolist() == [9, 0, 0]


def test_a_folder_has_names_and_classes(folder):
    samples = read_samples(folder, COLOR)
    assert samples.names == ("cat/1.png", "dog/1.png")
    assert samples.inputs[:, 0, 0, 0].tolist() == [10, 20]
    assert samples.labels.tolist() == ["cat", "dog"]


def test_a_flat_folder_has_no_labels(folder):
    samples = read_samples(str(folder / "dog"), COLOR)
    assert (samples.names, samples.labels) == (("1.png",), None)
    assert not (folder / "dog" / ".fedsol-cache").exists()


def test_of_a_training_folder_the_test_images_are_taken(folder, tmp_path):
    (tmp_path / "own" / "train").mkdir(parents=True)
    folder.rename(tmp_path / "own" / "test")
    assert read_samples(tmp_path / "own", COLOR).names == ("cat/1.png", "dog/1.png")


def test_image_files_are_converted_and_resized_as_in_training(tmp_path):
    photo(30, (12, 8)).save(tmp_path / "large.png")
    message = refused(tmp_path / "large.png", GRAY)
    assert message.endswith("large.png: must have 6 x 4 pixels, as in training (got 12 x 8)")
    square = DataDescription("s", "images", {"inputs": InputTensor("uint8", (1, 4, 4))}, 2, image_size=4)
    assert read_samples(tmp_path / "large.png", square).inputs.shape == (1, 1, 4, 4)


@pytest.mark.parametrize("names", [("x", "y"), ("x_test", "y_test"), ("test_images", "test_labels")])
def test_an_npz_file(tmp_path, names):
    np.savez(tmp_path / "more.npz", **{names[0]: np.ones((2, 3)), names[1]: np.array([2, 0])})
    samples = read_samples(tmp_path / "more.npz", VECTORS)
    assert samples.labels.tolist() == [2, 0]
    assert len(samples) == 2


def test_pairs_splits_and_named_arrays():
    x, y = np.ones((2, 3), np.float32), np.array([2, 0])
    split = Split(torch.from_numpy(x), torch.from_numpy(y))
    for source in ((x, y), split, {"inputs": x, "labels": y}):
        samples = read_samples(source, VECTORS)
        assert labels_of(samples.labels, VECTORS, "classification").tolist() == [2, 0]


def test_other_forms_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    assert refused(tmp_path / "notes.txt", COLOR).endswith(
        "must be a folder of images, an image, an .npz file, a .csv or .parquet file"
    )
    assert refused(tmp_path / "nothing", COLOR).endswith("nothing: no such file or folder")
    assert refused(np.zeros((2, 4, 6), np.uint8), COLOR) == (
        "inputs: must be uint8 of shape (N, 3, 4, 6), as in training (got uint8 of (2, 4, 6))"
    )
    assert refused(np.zeros((2, 3), np.int64), VECTORS) == (
        "inputs: must be float32 of shape (N, 3), as in training (got int64 of (2, 3))"
    )
    assert refused(np.zeros((0, 3), np.float32), VECTORS) == "inputs: must not be empty"
    assert refused(np.array([[1, 2, np.nan]]), VECTORS).startswith("inputs must be finite in 32 bits (got 1 values")
    assert refused({"x_train": np.zeros((2, 3))}, VECTORS) == (
        "must have an array 'inputs' or 'x' or 'x_test' or 'test_images' (got x_train)"
    )
    assert refused((np.zeros((2, 3)), np.zeros(3, np.int64)), VECTORS) == "inputs: has 2 samples but 3 labels"
    assert refused((np.zeros((1, 3)), 1), VECTORS) == "labels: must be one for each sample (got a single one)"
    assert refused([photo(1), photo(1, (5, 5))], COLOR).startswith("inputs: must be one array, or images of one size")
    assert refused(object(), VECTORS) == "inputs: must be an array of numbers (got a object)"


def test_an_empty_folder_and_images_for_a_model_of_features(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty", COLOR).endswith("empty: has no images")
    assert refused(folder, VECTORS).endswith("photos: has images, and the model takes features")


def test_labels_are_names_or_numbers():
    assert labels_of(np.array(["dog", "cat"]), COLOR, "classification").tolist() == [1, 0]
    assert labels_of(np.array([[1], [0]]), COLOR, "classification").tolist() == [1, 0]
    numbered = DataDescription("n", "features", VECTORS.inputs, 2, ("1", "2"))
    assert labels_of(np.array([2, 1]), numbered, "classification").tolist() == [1, 0]
    for labels, data, wrong in ((["bird"], COLOR, "bird"), ([0], numbered, "0"), ([3], VECTORS, "3")):
        with pytest.raises(InputError, match=f"labels: the class '{wrong}' does not occur in training; known: "):
            labels_of(np.array(labels), data, "classification")
    with pytest.raises(InputError, match=r"labels must be integers or strings of shape \(N,\)"):
        labels_of(np.array([0.5]), VECTORS, "classification")


COLUMNS = Columns((Number("age", 40.0, 10.0, 50.0), Number("dose", 0.0, 2.0)), ())
TABLE = DataDescription(
    "ward", "features", {"inputs": InputTensor("float32", (2,))}, 2, ("no", "yes"), columns=COLUMNS, target=("ill",)
)
MIXED = DataDescription(
    "ward",
    "named",
    {"numbers": InputTensor("float32", (1,)), "categories": InputTensor("int64", (1,))},
    1,
    ("cost",),
    columns=Columns((Number("age", 40.0, 10.0),), (Category("sex", ("f", "m")),)),
    target=("cost",),
    target_mean=(100.0,),
    target_std=(20.0,),
)


@pytest.mark.parametrize("form", ["frame", "csv", "parquet", "mapping"])
def test_rows_of_a_table_are_scaled_as_in_training(form, tmp_path):
    frame = pandas.DataFrame({"dose": [1.0, 4.0], "age": [50.0, None], "ill": ["yes", "no"], "other": [1, 2]})
    source = {"frame": frame, "csv": tmp_path / "t.csv", "parquet": tmp_path / "t.parquet", "mapping": dict(frame)}[
        form
    ]
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    samples = read_samples(source, TABLE)
    assert samples.inputs.tolist() == [[1.0, 0.5], [1.0, 2.0]]
    assert labels_of(samples.labels, TABLE, "classification").tolist() == [1, 0]


def test_an_array_has_the_columns_in_their_order():
    samples = read_samples(np.array([[50.0, 1.0]]), TABLE)
    assert samples.inputs.tolist() == [[1.0, 0.5]]
    assert samples.labels is None
    labeled = read_samples((np.array([[50.0, 1.0]]), ["yes"]), TABLE)
    assert labeled.labels.tolist() == ["yes"]
    assert refused(np.zeros((2, 3)), TABLE) == "inputs: must have the columns age, dose, as in training (got (2, 3))"


def test_categories_and_targets_in_their_own_units():
    frame = pandas.DataFrame({"sex": ["m", "x"], "age": [40, 60], "cost": [140.0, 80.0]})
    samples = read_samples(frame, MIXED)
    assert samples.inputs["numbers"].tolist() == [[0.0], [2.0]]
    assert samples.inputs["categories"].tolist() == [[2], [0]]
    assert labels_of(samples.labels, MIXED, "regression").tolist() == [[2.0], [-1.0]]
    assert read_samples([[60, "m"]], MIXED).inputs["categories"].tolist() == [[2]]
    assert refused(7, MIXED).startswith("inputs: must be a table (")


def test_labels_of_a_series():
    classes = pandas.Series(["c", "a"], dtype=object)
    assert read_samples((np.zeros((2, 3)), classes), VECTORS).labels.tolist() == ["c", "a"]
    assert refused((np.zeros((2, 3)), pandas.Series(["c", None], dtype=object)), VECTORS).startswith("labels: must be")


def test_a_table_without_its_columns_or_targets(tmp_path):
    frame = pandas.DataFrame({"age": [1.0], "dose": [1.0], "ill": [None]})
    assert read_samples(frame, TABLE).labels is None
    assert refused(frame[["age"]], TABLE) == "the table: has no column 'dose'; it has age"
    frame.to_csv(tmp_path / "t.csv")
    assert refused(tmp_path / "t.csv", VECTORS).endswith("t.csv: is a table, and the model takes features")
    np.savez(tmp_path / "t.npz", x=np.zeros((1, 2)))
    assert refused(tmp_path / "t.npz", TABLE).endswith(
        "must be a table with the columns of the training data, not arrays"
    )


@pytest.mark.parametrize(
    ("kind", "labels", "message"),
    [
        ("multilabel", [[0, 2, 1]], "labels must be zeros and ones (got 2 at (0, 1))"),
        ("multilabel", [[0, 1]], "labels: must have 3 columns, as in training (got 2)"),
        ("segmentation", [[[0, 3]]], "labels: must be 0 to 2, as in training (got 3)"),
        ("regression", [["a"]], "labels must be numbers of shape (N,) or (N, targets) (got <U1 (1, 1))"),
    ],
)
def test_labels_that_do_not_fit_the_task(kind, labels, message):
    with pytest.raises(InputError) as error:
        labels_of(np.array(labels), VECTORS, kind)
    assert str(error.value) == message


def test_tokens_of_any_length_and_named_inputs():
    tokens = DataDescription("text", "tokens", {"inputs": InputTensor("int64", (5,))}, 9, vocabulary=9)
    assert read_samples([[1, 2, 3]], tokens).inputs.tolist() == [[1, 2, 3]]
    both = {"input_ids": InputTensor("int64", (5,)), "attention_mask": InputTensor("int64", (5,))}
    named = DataDescription("text", "named", both, 2, vocabulary=9)
    source = {"input_ids": np.ones((2, 3), np.int32), "attention_mask": np.ones((2, 3), bool), "y": np.array([1, 0])}
    samples = read_samples(source, named)
    assert samples.inputs["attention_mask"].dtype == torch.int64
    assert samples.labels.tolist() == [1, 0]
    assert refused({"input_ids": np.ones((2, 3), int)}, named) == (
        "must have the inputs input_ids, attention_mask, as in training (got input_ids)"
    )
    assert refused({**source, "attention_mask": np.ones((1, 3), int)}, named) == (
        "attention_mask: must have 2 samples like the other inputs (got 1)"
    )
    assert named.blank().vocabulary == 9


WORDS = DataDescription(
    "text",
    "named",
    {"input_ids": InputTensor("int64", (5,)), "attention_mask": InputTensor("int64", (5,))},
    2,
    ("good", "bad"),
    vocabulary=9,
)


class Pairs(torch.utils.data.Dataset):
    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def test_tokens_of_different_lengths_are_filled_up():
    samples = read_samples({"input_ids": [[1, 2, 3], [4]]}, WORDS)
    assert samples.inputs["input_ids"].tolist() == [[1, 2, 3], [4, 0, 0]]
    assert samples.inputs["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert read_samples({"input_ids": [[1, 2]]}, WORDS).inputs["attention_mask"].tolist() == [[1, 1]]
    assert refused({"input_ids": []}, WORDS).startswith("must have the inputs input_ids, attention_mask")
    plain = DataDescription("text", "tokens", {"inputs": InputTensor("int64", (5,))}, 9, vocabulary=9)
    assert refused([[1, 2, 3], [4]], plain).startswith("inputs: must be one array")


def test_datasets_of_torch():
    pairs = Pairs((torch.ones(3), 2), (torch.zeros(3), 0))
    samples = read_samples(pairs, VECTORS)
    assert samples.inputs.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert samples.labels.tolist() == [2, 0]
    for item in (lambda t, y: ({"input_ids": t}, y), lambda t, y: {"input_ids": t, "labels": y}):
        samples = read_samples(Pairs(item(torch.tensor([1, 2]), 1), item(torch.tensor([3]), 0)), WORDS)
        assert samples.inputs["input_ids"].tolist() == [[1, 2], [3, 0]]
        assert samples.labels.tolist() == [1, 0]
    assert refused(Pairs(torch.ones(3)), VECTORS) == "data: its items must be pairs of inputs and target, or dicts"


def test_datasets_of_hugging_face(tmp_path):
    datasets = pytest.importorskip("datasets", reason="an optional dependency: pip install 'fedsol[text]'")
    rows = {"input_ids": [[1, 2], [3]], "attention_mask": [[1, 1], [1]], "label": [1, 0], "note": ["x", "y"]}
    names = datasets.ClassLabel(names=["good", "bad"])
    found = datasets.Dataset.from_dict(rows).cast_column("label", names)
    found.save_to_disk(str(tmp_path / "saved"))
    for source in (found, datasets.DatasetDict({"test": found}), tmp_path / "saved"):
        samples = read_samples(source, WORDS)
        assert samples.inputs["attention_mask"].tolist() == [[1, 1], [1, 0]]
        assert labels_of(samples.labels, WORDS, "classification").tolist() == [1, 0]
    table = datasets.Dataset.from_dict({"dose": [1.0], "age": [50.0], "ill": ["yes"]})
    assert read_samples(table, TABLE).inputs.tolist() == [[1.0, 0.5]]
    images = datasets.Dataset.from_dict({"image": [photo(9)]}, features=datasets.Features({"image": datasets.Image()}))
    assert read_samples(images, COLOR).inputs[0, :, 0, 0].tolist() == [9, 0, 0]
    assert refused(datasets.DatasetDict({"train": found}), WORDS) == "data: has no split 'test'; choose one of train"
    assert refused(found.remove_columns("label"), VECTORS).startswith("data: must have one column besides the target")
