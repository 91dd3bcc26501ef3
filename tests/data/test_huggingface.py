"""Hugging Face datasets: tables, images and tokens, saved to disk or returned by a function."""

import logging
import sys

import datasets
import numpy as np
import pytest
from PIL import Image

from fedsol.config.tables import DataSettings
from fedsol.data import huggingface
from fedsol.data.catalog import load_dataset
from fedsol.errors import InputError

LABEL = datasets.ClassLabel(names=["ham", "spam"])


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def unreachable(name, configuration=None):
        raise ConnectionError(f"no connection for {name}")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    datasets.disable_progress_bars()


def dataset_of(features=None, **columns):
    types = None if features is None else datasets.Features(features)
    return datasets.Dataset.from_dict(columns, features=types)


@pytest.fixture
def saved(tmp_path):
    def save(**splits) -> str:
        data = splits["only"] if "only" in splits else datasets.DatasetDict(splits)
        data.save_to_disk(str(tmp_path / "saved"))
        return str(tmp_path / "saved")

    return save


def load(source: str, kind: str = "classification", **settings):
    return load_dataset(DataSettings(name=source, **settings), kind)


def refused(source: str, kind: str = "classification", **settings) -> str:
    with pytest.raises(InputError) as error:
        load(source, kind, **settings)
    return str(error.value).replace(source, "FOLDER")


TABLE = {"age": datasets.Value("int64"), "sex": datasets.Value("string"), "label": LABEL}


def test_a_table(saved):
    train = dataset_of(TABLE, age=[30, 50], sex=["f", "m"], label=[1, 0])
    test = dataset_of(TABLE, age=[40], sex=["x"], label=[1])
    folder = saved(train=train, test=test)
    for name in (folder, f"hf:{folder}"):
        dataset = load(name)
        assert dataset.train.inputs["numbers"].tolist() == [[-1], [1]]
        assert dataset.test.inputs["categories"].tolist() == [[0]]
        assert dataset.class_names == ("ham", "spam")
        assert dataset.train.labels.tolist() == [1, 0]
        assert dataset.name == "saved"
    regression = load(folder, "regression", target="age", features=["sex"])
    assert regression.target_mean == (40.0,)


def test_tokens_of_different_length(saved):
    types = {"input_ids": datasets.Sequence(datasets.Value("int32")), "label": LABEL, "site": datasets.Value("string")}
    data = dataset_of(types, input_ids=[[1, 2, 3], [4], [5, 6], [7]], label=[0, 1, 0, 1], site=["b", "a", "b", "a"])
    dataset = load(saved(only=data), test_fraction=0.5, client="site")
    assert dataset.train.inputs["input_ids"].tolist() == [[1, 2, 3], [4, 0, 0]]
    assert dataset.train.inputs["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert (dataset.client_names, dataset.train.clients.tolist()) == (("a", "b"), [1, 0])
    assert dataset.class_names == ("ham", "spam")
    texts = load(saved(only=data), "next-token", test_fraction=0.5)
    assert texts.train.inputs["input_ids"].shape == texts.train.labels.shape


def test_images_are_stored_once(saved, monkeypatch):
    images = [Image.fromarray(np.full((4, 5), 10 * number, dtype=np.uint8)) for number in range(4)]
    types = {"picture": datasets.Image(), "label": LABEL}
    folder = saved(only=dataset_of(types, picture=images, label=[0, 1, 0, 1]))
    first = load(folder, test_fraction=0.5)
    assert first.train.inputs[:, 0, 0, 0].tolist() == [0, 10]
    monkeypatch.setattr(huggingface, "read_items", None)  # is not called again
    again = load(folder, test_fraction=0.5)
    assert (again.input_shape, again.class_names, again.mean) == ((1, 4, 5), ("ham", "spam"), first.mean)


def test_images_of_other_sizes_and_channels(saved):
    types = {"picture": datasets.Image(), "label": LABEL}
    gray, color = Image.new("L", (4, 6)), Image.new("RGB", (8, 5))
    folder = saved(only=dataset_of(types, picture=[gray, color, gray, color], label=[0, 1, 0, 1]))
    assert "item 1: has a color image, and the first item a gray one; set data.channels" in refused(
        folder, test_fraction=0.5
    )
    assert "item 1: must be as in the first item, uint8 of shape (6, 4, 3)" in refused(
        folder, test_fraction=0.5, channels=3
    )
    dataset = load(folder, test_fraction=0.5, channels=3, image_size=5)
    assert dataset.input_shape == (3, 5, 5)
    assert refused(folder, layout="client/class").startswith("data.layout: only applies to image folders")
    missing = saved(only=dataset_of(types, picture=[gray, None], label=[0, 1]))
    assert "item 1: has no image in 'picture'" in refused(missing, test_fraction=0.5)


def test_a_function_returns_them(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import datasets\n"
        "def load():\n"
        "    part = datasets.Dataset.from_dict({'x': [[0.0, 1.0], [2.0, 3.0]], 'label': [0, 1]})\n"
        "    return datasets.DatasetDict({'train': part, 'validation': part})\n"
        "def two():\n    return {'train': load()['train'], 'test': load()['train']}\n"
    )
    dataset = load(f"{tmp_path}/mine.py:load", test="validation")
    assert dataset.test.inputs.tolist() == [[0, 1], [2, 3]]
    assert len(load(f"{tmp_path}/mine.py:two").test) == 2
    assert refused(f"{tmp_path}/mine.py:load") == (
        "FOLDER: has no split 'test'; set data.test to one of train, validation, or data.test_fraction"
    )


def test_what_is_wrong_is_one_message(saved, tmp_path):
    good = {"age": [30, 50, 1, 2], "label": [1, 0, 1, 0]}
    part = dataset_of(**good)
    folder = saved(train=part, test=part)
    assert refused(folder, target="lable").startswith("data.target: unknown value 'lable'; did you mean 'label'?")
    assert refused(folder, test="tset").startswith("data.test: unknown value 'tset'; did you mean 'test'?")
    assert refused(folder, separator=";").startswith("data.separator: only applies to CSV files")
    assert "does not fit a table" in refused(folder, "segmentation")
    only = saved(only=dataset_of(age=[1, 2], y=[0, 1]))
    assert refused(only) == "data.target: is missing; set it to the column to predict, one of age, y"
    assert refused(only, target="y", test="test").startswith("data.test: must not be set, as 'FOLDER' has one split")
    assert refused(only, target="y").startswith("FOLDER: has no test rows; set data.test")
    texts = dataset_of(text=[f"sentence {number}" for number in range(40)], label=[0, 1] * 20)
    assert refused(saved(only=texts)).startswith("FOLDER: column 'text' is text; tokenize it first")
    unlabeled = dataset_of({"age": datasets.Value("int64"), "label": LABEL}, age=[1, 2], label=[0, -1])
    assert "data.target: 'label' has 1 missing value, the first in row 2" in refused(saved(only=unlabeled))
    message = refused("hf:nobody/nothing").replace("FOLDER", "hf:nobody/nothing")
    assert message.startswith("data.name: 'hf:nobody/nothing' cannot be read; must be an existing folder or a dataset")
    (tmp_path / "empty").mkdir()
    assert "must be a folder written by save_to_disk" in refused(f"hf:{tmp_path}/empty")


def test_attempts_to_reach_the_hub_are_not_reported(monkeypatch, capfd):
    loggers = logging.getLogger("huggingface_hub"), logging.getLogger("huggingface_hub.utils._http")

    def unreachable(_name):
        loggers[1].warning("thrown while requesting; retrying")
        raise ConnectionError("Couldn't reach 'nobody' on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    level = loggers[0].level
    assert refused("hf:nobody").endswith("(Couldn't reach 'nobody' on the Hub)")
    assert (capfd.readouterr().err, loggers[0].level) == ("", level)


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    message = "data.name: 'x' requires Hugging Face datasets, which is not installed; run: pip install 'fedsol[text]'"
    assert refused("hf:x").replace("FOLDER", "hf:x") == message
