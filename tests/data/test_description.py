"""data.json: what a model must know about its data."""

import json

import numpy as np
import pytest
import torch

from fedsol.config.tables import DataSettings
from fedsol.data.catalog import SPECS, load_dataset
from fedsol.data.description import InputTensor, describe_data, parse_description, read_description
from fedsol.errors import InputError


def described(name, **settings):
    data = DataSettings(name=str(name), **settings)
    return describe_data(load_dataset(data), data)


def test_images_are_described():
    found = described("digits", channels=3)
    assert (found.kind, found.inputs, found.classes) == ("images", {"inputs": InputTensor("uint8", (1, 8, 8))}, 10)
    assert (found.channels, found.mean, len(found.std)) == (3, (0.0,), 1)
    assert found.class_names == ()
    assert found.names == tuple("0123456789")


def test_features_keep_the_names_of_their_classes(tmp_path):
    x, y = np.zeros((6, 4), np.float64), np.array(["cat", "dog"] * 3)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    found = described(tmp_path / "own.npz")
    assert (found.kind, found.input) == ("features", InputTensor("float32", (4,)))
    assert found.names == ("cat", "dog")


def test_blank_samples_have_the_form_of_the_data():
    found = described("digits", channels=3)
    blank = found.blank()
    assert len(blank.train) == len(blank.test) == 2
    assert blank.input_shape == (3, 8, 8)
    assert blank.train.inputs.dtype == torch.uint8
    assert describe_data(blank, DataSettings(name="digits")) == found


def test_a_file_is_read_as_it_was_written(tmp_path):
    found = described("digits")
    (tmp_path / "data.json").write_text(found.to_json())
    assert read_description(tmp_path / "data.json") == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "data.json: must describe the data of a run (format: Input should be 'fedsol-data/1')"),
        ({"kind": "sounds"}, "data.json: must describe the data of a run (kind: Input should be "),
        ({"more": 1}, "data.json: must describe the data of a run (more: Unexpected keyword argument)"),
        ({"mean": [0.1, 0.2]}, "data.json: mean must have one number for each of 1 channels (got (0.1, 0.2))"),
        (
            {"codes": [3, 4]},
            "data.json: must describe the data of a run (kind, inputs, classes: do not fit each other)",
        ),
        (
            {"kind": "named"},
            "data.json: must describe the data of a run (kind, inputs, classes: do not fit each other)",
        ),
        ({"kind": "named", "inputs": {}}, "data.json: must describe the data of a run (kind, inputs, classes: do not"),
        (
            {"vocabulary": 9},
            "data.json: must describe the data of a run (kind, inputs, classes: do not fit each other)",
        ),
        ({"class_names": ["a"]}, "data.json: must describe the data of a run (kind, inputs, classes: do not fit"),
        (
            {"inputs": {"inputs": {"type": "uint8", "shape": [1, -1, 8]}}},
            "data.json: must describe the data of a run (",
        ),
        ({"classes": "ten"}, "data.json: must describe the data of a run (classes: Input should be a valid integer"),
    ],
)
def test_a_description_that_is_none(change, message):
    text = json.dumps({**json.loads(described("digits").to_json()), **change})
    with pytest.raises(InputError) as error:
        parse_description(text, "data.json")
    assert str(error.value).startswith(message)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"data\.json: cannot be read"):
        read_description(tmp_path / "data.json")


def test_datasets_have_a_name_for_every_class_or_for_none():
    for spec in SPECS.values():
        assert len({*spec.class_names}) in (0, spec.classes)
    assert SPECS["cifar10"].class_names[3] == "cat"
    assert SPECS["cifar100"].class_names[99] == "worm"
