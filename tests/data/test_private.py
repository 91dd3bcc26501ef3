"""Data that only nodes have: labels and pixels mean the same on all of them, and what does not fit is refused."""

import tomllib

import numpy as np
import pytest
import torch
from PIL import Image

import fedsol
from fedsol import Experiment, InputError
from fedsol.core.messages import Job
from fedsol.data.batches import normalize
from fedsol.federation.federation import build_federation, node_federation
from tests.support.cli import fedsol as fedsol_command
from tests.support.private import save, settings


def test_the_server_knows_shapes_and_no_sample():
    federation = build_federation(settings())
    assert federation.clients == 2
    assert [len(indices) for indices in federation.partition] == [0, 0]
    assert len(federation.dataset.test) == 0
    assert federation.dataset.input_shape == (1, 8, 8)


def test_the_servers_own_test_set(tmp_path):
    np.savez(tmp_path / "test.npz", x_test=np.zeros((4, 8, 8), np.uint8), y_test=np.array([0, 1, 2, 2]))
    federation = build_federation(settings(data__private__test=str(tmp_path / "test.npz")))
    assert federation.dataset.test.labels.tolist() == [0, 1, 2, 2]
    assert sum(federation.evaluate(federation.initial_weights()).examples) == 4


def test_a_node_sees_its_own_samples_only(tmp_path):
    federation = node_federation(settings(), save(tmp_path / "own.npz", [2, 0, 2, 2]), 1)
    assert [len(indices) for indices in federation.partition] == [0, 4]
    assert federation.dataset.train.labels.tolist() == [2, 0, 2, 2]
    assert len(federation.held_out_samples(1)) == 1
    weights = federation.initial_weights()
    update = federation.train(Job(1, 1, weights, state=federation.initial_state()))
    assert update.examples == 3
    assert sum(federation.evaluate_client(weights, 1).examples) == 1


def test_names_of_classes_are_numbered_alike_on_every_node(tmp_path):
    named = settings(data__private__classes=None, data__private__class_names=["sick", "well", "unsure"])
    first = node_federation(named, save(tmp_path / "a.npz", ["well", "sick"]), 0)
    second = node_federation(named, save(tmp_path / "b.npz", ["unsure", "well"]), 1)
    assert first.dataset.train.labels.tolist() == [1, 0]
    assert second.dataset.train.labels.tolist() == [2, 1]
    assert first.dataset.classes == second.dataset.classes == 3


@pytest.mark.parametrize("below", ["", "train"])
def test_a_folder_of_images(tmp_path, below):
    for name, value in (("well", 10), ("sick", 200)):
        (tmp_path / below / name).mkdir(parents=True)
        Image.fromarray(np.full((8, 8), value, np.uint8)).save(tmp_path / below / name / "1.png")
    named = settings(data__private__classes=None, data__private__class_names=["well", "sick"])
    dataset = node_federation(named, str(tmp_path), 0).dataset
    by_label = {int(label): int(image.flatten()[0]) for label, image in zip(*splits(dataset), strict=True)}
    assert by_label == {0: 10, 1: 200}


def splits(dataset):
    return dataset.train.labels, dataset.train.inputs


def test_pixels_are_shown_alike_on_every_node(tmp_path):
    dark = node_federation(settings(), save(tmp_path / "a.npz", [0], np.zeros((1, 8, 8), np.uint8)), 0)
    light = node_federation(settings(), save(tmp_path / "b.npz", [0], np.full((1, 8, 8), 200, np.uint8)), 1)
    assert dark.dataset.mean == light.dataset.mean == (0.5,)
    assert dark.dataset.std == light.dataset.std == (0.5,)


def test_what_the_experiment_says_of_channels_and_augmentation_holds_on_nodes(tmp_path):
    shown = settings(data__channels=3, data__augmentation__pad=1)
    server = build_federation(shown).dataset
    node = node_federation(shown, save(tmp_path / "own.npz", [0, 1]), 0).dataset
    assert node.input_shape == server.input_shape == (3, 8, 8)
    assert node.augmentation == server.augmentation
    assert node.augmentation.pad == 1


def test_features(tmp_path):
    features = settings(data__private__inputs="features", data__private__shape=[5])
    path = save(tmp_path / "f.npz", [0, 1, 2], np.ones((3, 5), np.float64))
    dataset = node_federation(features, path, 0).dataset
    assert dataset.train.inputs.dtype == torch.float32
    assert dataset.input_shape == (5,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.private.shape": []}, r"data.private.shape: is missing"),
        ({"data.private.shape": [8, 8]}, r"data.private.shape: must be \[channels, height, width\] for images"),
        ({"data.private.classes": None}, r"data.private.classes: is missing"),
        (
            {"data.private.class_names": ["a", "b"]},
            r"data.private.classes: must be 2, the number of class_names \(got 3\)",
        ),
        ({"data.part": 0.5}, r"data.part: must be 1 with private data"),
        ({"data.partition.clients": None}, r"data.partition.clients: is missing"),
        ({"data.private.mean": [0.5, 0.5]}, r"data.private: mean must have one number for each of 1 channels"),
        ({"data.private.test": "nowhere.npz"}, r"nowhere.npz"),
    ],
)
def test_what_the_server_refuses(changes, message):
    with pytest.raises(InputError, match=message):
        build_federation(settings(**changes))


@pytest.mark.parametrize(
    ("labels", "images", "message"),
    [
        ([0, 3], None, r"labels must be 0 to 2 \(got 0 to 3\)"),
        (["well"], None, "the class 'well' is not in data.private.class_names"),
        ([0], np.zeros((1, 9, 9), np.uint8), r"inputs must be .* as in data.private \(got torch.uint8 \(1, 9, 9\)"),
        ([0], np.zeros((1, 8, 8)), r"inputs must be .*got torch.float32"),
    ],
)
def test_what_a_node_refuses(labels, images, message, tmp_path):
    with pytest.raises(InputError, match=message):
        node_federation(settings(), save(tmp_path / "own.npz", labels, images), 0)


def test_the_app_of_a_deployment_names_the_servers_test_set_wherever_it_runs(tmp_path, monkeypatch):
    pytest.importorskip("flwr", reason="Flower is an optional dependency")
    monkeypatch.chdir(tmp_path)
    np.savez("test.npz", x_test=np.zeros((4, 8, 8), np.uint8), y_test=np.array([0, 1, 2, 2]))
    (tmp_path / "mine.toml").write_text(settings(data__private__test="test.npz").to_toml())
    done = fedsol_command("flower", "app", "mine.toml", "-o", "app")
    assert done.exit_code == 0, done.output
    (written,) = (tmp_path / "app").rglob("experiment.toml")
    assert Experiment(**tomllib.loads(written.read_text())).data.private.test == str(tmp_path / "test.npz")


def test_a_file_without_the_part_it_is_read_for_is_named(tmp_path):
    np.savez(tmp_path / "own.npz", x_test=np.zeros((1, 8, 8), np.uint8), y_test=np.array([0]))
    with pytest.raises(InputError, match=r"own\.npz: has no arrays x_train and y_train"):
        node_federation(settings(), str(tmp_path / "own.npz"), 0)


def test_a_node_of_another_experiment_or_number_is_refused(tmp_path):
    path = save(tmp_path / "own.npz", [0])
    with pytest.raises(InputError, match="partition-id: must be less than 2, the number of clients"):
        node_federation(settings(), path, 2)
    with pytest.raises(InputError, match="the experiment's data is 'digits'"):
        node_federation(Experiment(), path, 0)
    with pytest.raises(InputError, match="must be an existing folder of images"):
        node_federation(settings(), "nowhere", 0)


def test_private_data_is_for_deployments_only():
    with pytest.raises(InputError, match="is allowed only in a deployment"):
        fedsol.train(settings())


TABLE = {
    "data.private.shape": [],
    "data.private.inputs": "table",
    "data.private.numbers": {"age": [50, 10.0]},
    "data.private.categories": {"sex": ["f", "m"]},
    "data.private.classes": None,
    "data.private.class_names": ["no", "yes"],
    "data.target": "ill",
    "model.name": None,
}


def table(**changes):
    return settings(**{key.replace(".", "__"): value for key, value in {**TABLE, **changes}.items()})


def rows(path, text="sex,age,ill\nm,60,yes\nx,40,no\nf,50,no\nf,45,no\n"):
    path.write_text(text)
    return str(path)


def test_tables_of_nodes_are_encoded_alike(tmp_path):
    node = node_federation(table(), rows(tmp_path / "own.csv"), 1)
    assert node.dataset.train.inputs["numbers"].flatten().tolist() == [1, -1, 0, -0.5]
    assert node.dataset.train.inputs["categories"].flatten().tolist() == [2, 0, 1, 1]
    assert node.dataset.train.labels.tolist() == [1, 0, 0, 0]
    assert node.dataset.class_names == ("no", "yes")
    server = build_federation(table())
    assert server.initial_weights().keys() == node.initial_weights().keys()
    update = node.train(Job(1, 1, server.initial_weights(), {}, {}))
    assert update.examples == 3  # a quarter is held out
    tested = build_federation(table(**{"data.private.test": rows(tmp_path / "test.csv")}))
    assert sum(tested.evaluate(tested.initial_weights()).examples) == 4


def test_tables_of_nodes_for_other_tasks(tmp_path):
    numbers = {"data.private.categories": {}, "data.private.class_names": [], "data.partition.kind": "iid"}
    scale = {"data.private.target_mean": [2.0], "data.private.target_std": [4.0]}
    text = "age,y,a,b\n50,10,0,1\n60,2,1,1\n"
    regression = table(**numbers, **scale, **{"task.kind": "regression", "data.target": "y"})
    node = node_federation(regression, rows(tmp_path / "own.csv", text), 0)
    assert node.dataset.train.labels.tolist() == [[2.0], [0.0]]
    assert node.dataset.train.inputs.tolist() == [[0.0], [1.0]]
    several = table(**numbers, **{"task.kind": "multilabel", "data.target": ["a", "b"]})
    node = node_federation(several, rows(tmp_path / "own.csv", text), 0)
    assert node.dataset.train.labels.tolist() == [[0, 1], [1, 1]]
    assert build_federation(several).dataset.class_names == ("a", "b")


@pytest.mark.parametrize(
    ("changes", "text", "message"),
    [
        ({}, "sex,ill\nf,no\n", r"own.csv: has no column 'age'; it has sex, ill"),
        ({}, "sex,age,ill\nf,,no\n", r"own.csv: column 'age' has 1 missing value, the first in row 1"),
        ({}, "sex,age,ill\n,1,no\n", r"own.csv: column 'sex' has 1 missing value, the first in row 1"),
        ({}, "sex,age,ill\nf,1,maybe\n", r"the class 'maybe' is not in data.private.class_names \['no', 'yes'\]"),
        ({"data.target": None}, "", r"^data.target: is missing; set it to the column to predict"),
        ({"data.target": "age"}, "", r"^data.target: 'age' must not be among the columns of \[data.private\]"),
        ({"data.private.shape": [3]}, "", r"^data.private.shape: must not be set for a table"),
        ({"data.private.numbers": {}, "data.private.categories": {}}, "", r"^data.private.numbers: is missing; set it"),
        ({"data.private.numbers": {"sex": [0, 1]}}, "", r"^data.private.categories: 'sex' must not be among data.priv"),
        ({"data.features": ["age"]}, "", r"^data.features: must not be set with private data"),
        ({"data.missing": "median"}, "", r"^data.missing: must be 'refuse' or 'mean' with private data"),
        ({"data.private.class_names": []}, "", r"^data.private.classes: is missing"),
        ({"task.kind": "regression"}, "", r"^data.private.target_mean, data.private.target_std: are missing"),
        ({"task.kind": "next-token"}, "", r"^task.kind: 'next-token' does not fit private data"),
        (
            {"data.private.inputs": "features"},
            "",
            r"^data.target: only applies to tables, and data.private.inputs is",
        ),
    ],
)
def test_tables_that_nodes_cannot_agree_on(tmp_path, changes, text, message):
    with pytest.raises(InputError, match=message):
        node_federation(table(**changes), rows(tmp_path / "own.csv", text), 0)


def test_missing_values_of_nodes_have_the_agreed_mean(tmp_path):
    source = rows(tmp_path / "own.csv", "sex,age,ill\n,,no\nf,60,yes\n")
    inputs = node_federation(table(**{"data.missing": "mean"}), source, 0).dataset.train.inputs
    assert inputs["numbers"].flatten().tolist() == [0, 1]
    assert inputs["categories"].flatten().tolist() == [0, 1]
    with pytest.raises(InputError, match=r"must be a .csv or .parquet file, as data.private.inputs is 'table'"):
        node_federation(table(), str(tmp_path), 0)


def test_a_scale_is_a_mean_and_a_deviation():
    with pytest.raises(InputError, match=r"data.private.numbers: 'age' must be \[mean, std\], with std greater than 0"):
        table(**{"data.private.numbers": {"age": [1.0, 0.0]}})


def test_nodes_standardize_floats_by_stated_values(tmp_path):
    stated = {"data__standardize": True, "data__private__inputs": "features", "data__private__shape": [2]}
    scaled = settings(**stated, data__private__mean=[1.0, 20.0], data__private__std=[2.0, 10.0])
    path = save(tmp_path / "f.npz", [0, 1, 2], np.array([[1.0, 20.0], [3.0, 40.0], [1.0, 20.0]]))
    node = node_federation(scaled, path, 0).dataset
    assert normalize(node.train.inputs, node).tolist() == [[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]]
    with pytest.raises(InputError, match=r"^data.private.mean: must be stated for data.standardize, as one number or"):
        build_federation(settings(**stated))
    with pytest.raises(InputError, match=r"^data.private.std: must be stated .* or 2: .*\(got \[1.0, 1.0, 1.0\]\)"):
        build_federation(settings(**stated, data__private__mean=[1.0], data__private__std=[1.0, 1.0, 1.0]))
    with pytest.raises(InputError, match=r"data.standardize: must not be set for data.private.inputs = 'images'"):
        build_federation(settings(data__standardize=True))
