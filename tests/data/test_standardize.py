"""`data.standardize`: floats scaled by the training samples' statistics, everywhere that a model sees them."""

import numpy as np
import pytest
import torch

import fedsol
from fedsol import Dataset, Experiment, InputError, Split
from fedsol.config.tables import DataSettings
from fedsol.data.batches import batches, evaluation_batches
from fedsol.data.catalog import load_dataset
from fedsol.inference.export import make_graph

NAME = "in-memory"
COLUMNS = np.array([[1.0, 10.0, 7.0], [3.0, 30.0, 7.0], [1.0, 10.0, 7.0], [3.0, 30.0, 7.0]])
LABELS = np.array([0, 1, 0, 1])


def standardized(arrays, kind="classification", **changes):
    return load_dataset(DataSettings(name=NAME, standardize=True, **changes), kind, arrays)


def arrays_of(inputs, test=None):
    test = inputs if test is None else test
    return {"x_train": inputs, "y_train": LABELS, "x_test": test, "y_test": LABELS}


def seen(dataset):
    (batch,) = evaluation_batches(dataset.test, dataset, 10)
    return batch.inputs.tolist()


def test_columns_by_hand():
    # Means 2, 20 and 7; deviations 1, 10 and 0, which stays 1: a constant column is only shifted.
    dataset = standardized(arrays_of(COLUMNS, COLUMNS + np.array([2, -10, 1])))
    assert (dataset.mean, dataset.std) == ((2.0, 20.0, 7.0), (1.0, 10.0, 1.0))
    assert seen(dataset) == [[1.0, -2.0, 1.0], [3.0, 0.0, 1.0]] * 2  # by the training samples, not by its own
    generator = torch.Generator().manual_seed(0)
    (batch,) = batches(dataset, torch.arange(4), 4, 1, generator)
    assert sorted(batch.inputs.tolist()) == [[-1.0, -1.0, 0.0]] * 2 + [[1.0, 1.0, 0.0]] * 2


def test_channels_by_hand():
    # The first channel has 0 and 4 (mean 2, deviation 2), the second 5 everywhere.
    images = np.zeros((4, 2, 1, 2), np.float32)
    images[:, 0, 0, 1], images[:, 1] = 4, 5
    dataset = standardized(arrays_of(images))
    assert (dataset.mean, dataset.std) == ((2.0, 5.0), (2.0, 1.0))
    assert seen(dataset)[0] == [[[-1.0, 1.0]], [[0.0, 0.0]]]


def test_a_constant_column_of_a_table_is_only_shifted(tmp_path):
    assert np.full(12, 0.1).std() > 0  # rounded, and 0.2 would become about 10 ** 16
    rows = "\n".join(f"0.1,{number},{number % 2}" for number in range(24))
    (tmp_path / "table.csv").write_text(f"same,x,y\n{rows}\n")
    found = load_dataset(DataSettings(name=str(tmp_path / "table.csv"), target="y", test_fraction=0.5))
    assert len(found.train) == 12
    assert found.columns.numbers[0].std == 1.0


def test_of_a_test_fraction_the_rest_counts():
    generator = np.random.default_rng(0)
    arrays = {"x_train": generator.normal(5, 3, (40, 2)), "y_train": np.arange(40) % 2}
    dataset = standardized(arrays, test_fraction=0.25)
    np.testing.assert_allclose(dataset.mean, dataset.train.inputs.double().mean(dim=0), rtol=1e-12)
    np.testing.assert_allclose(dataset.std, dataset.train.inputs.double().std(dim=0, correction=0), rtol=1e-12)


def test_without_it_floats_are_used_as_they_are():
    split = Split(torch.from_numpy(COLUMNS).float(), torch.from_numpy(LABELS))
    own = Dataset("own", split, split, 2, mean=(2.0,), std=(5.0,))  # of images, and it has none
    for data in (own, arrays_of(COLUMNS)):
        assert seen(load_dataset(DataSettings(name=NAME), data=data)) == COLUMNS.tolist()
    assert standardized(own).mean == (2.0, 20.0, 7.0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (arrays_of(np.zeros((4, 8, 8), np.uint8)), "for data: images of uint8 always are"),
        (arrays_of(np.ones((4, 3), np.int64)), "for data: its inputs are the ids of tokens"),
        (
            arrays_of({"age": COLUMNS, "dose": COLUMNS}),
            r"for data: its inputs are several \(age, dose\); standardize them before",
        ),
    ],
)
def test_what_cannot_be_standardized(data, message):
    with pytest.raises(InputError, match=f"^data.standardize: must not be set {message}$"):
        standardized(data)


def test_tables_and_named_datasets_always_are(tmp_path):
    (tmp_path / "table.csv").write_text("x,y\n1,0\n2,1\n3,0\n4,1\n")
    table = {"target": "y", "test_fraction": 0.5}
    for name, more in ((str(tmp_path / "table.csv"), table), ("digits", {})):
        with pytest.raises(InputError, match=r"data.standardize: must not be set for .*(table|images of uint8) always"):
            load_dataset(DataSettings(name=name, standardize=True, **more))


def test_the_warning_names_it_and_it_ends_the_warning(caplog):
    data = arrays_of(COLUMNS * 1000)
    load_dataset(DataSettings(name=NAME), data=data)
    assert caplog.messages == [
        "data: x_train: the features are not scaled: feature 1 is 10000 to 30000; set data.standardize = true"
    ]
    caplog.clear()
    standardized(data)
    assert caplog.messages == []


def test_training_prediction_and_export_see_the_same(tmp_path):
    generator = np.random.default_rng(1)
    labels = np.arange(60) % 3
    raw = (generator.normal(size=(60, 4)) + labels[:, None]) * [1, 50, 1000, 0.01] + 300
    base = Experiment(rounds=2, model="mlp", data={"partition": {"kind": "iid", "clients": 3}, "test_fraction": 0.2})
    data = {"x_train": raw, "y_train": labels}
    run = fedsol.train(base, data=data, out=tmp_path / "run", **{"data.standardize": True})
    mean, std = run.trained().data.mean, run.trained().data.std
    scaled = ((raw.astype(np.float32) - np.float32(mean)) / np.float32(std)).astype(np.float32)
    expected = fedsol.train(base, data={**data, "x_train": scaled})
    assert [row["test_loss"] for row in run.rows] == [row["test_loss"] for row in expected.rows]
    saved = fedsol.load(tmp_path / "run")
    assert saved.trained().data.mean == mean
    found = saved.predict(raw).probabilities
    np.testing.assert_allclose(found, expected.predict(scaled).probabilities, atol=1e-6)
    graph = make_graph(saved.trained()).module()
    with torch.no_grad():
        np.testing.assert_allclose(graph(torch.from_numpy(raw).float())[1].numpy(), found, atol=1e-6)
