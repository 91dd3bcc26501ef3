"""Data that is passed to `fedsol.train`, in place of its name."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import TensorDataset

import fedsol
from tests.support.tensors import same_tensors

ROWS = 60


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.normal(50, 10, ROWS)
    sex = rng.choice(["f", "m"], ROWS)
    ill = np.where(age + 10 * (sex == "m") > 55, "yes", "no")
    return pd.DataFrame({"age": age, "sex": sex, "hospital": np.arange(ROWS) % 3, "ill": ill})


def experiment(**tables) -> fedsol.Experiment:
    data = {"target": "ill", "client": "hospital", "test_fraction": 0.25, **tables.pop("data", {})}
    client = {"epochs": 1, "batch_size": 10, "lr": 0.1}
    return fedsol.Experiment(rounds=2, data=data, client=client, engine={"kind": "local"}, **tables)


def test_a_data_frame_trains_the_same_on_every_engine_and_after_a_stop(tmp_path):
    whole = fedsol.train(experiment(), data=frame())
    assert whole.experiment.data.name == "in-memory"
    assert whole.experiment.data.partition.kind == "own"
    workers = fedsol.train(experiment().override({"engine.kind": "workers", "engine.workers": 2}), data=frame())
    assert same_tensors(whole.weights, workers.weights)
    fedsol.train(experiment().override({"rounds": 1}), data=frame(), out=tmp_path / "run")
    resumed = fedsol.train(experiment(), data=frame(), out=tmp_path / "run", resume=True)
    assert same_tensors(whole.weights, resumed.weights)


def test_other_data_in_memory():
    tensors = TensorDataset(torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2)
    plain = fedsol.Experiment(
        rounds=1, data={"partition": {"kind": "iid", "clients": 2}}, client={"epochs": 1}, engine={"kind": "local"}
    )
    run = fedsol.train(plain, data={"train": tensors, "test": tensors})
    assert 0 <= run.rows[0]["test_accuracy"] <= 1
    arrays = {"x_train": tensors.tensors[0], "y_train": tensors.tensors[1]}
    split = plain.override({"data.test_fraction": 0.5})
    assert len(fedsol.train(split, data=arrays).rows) == 1


@pytest.mark.parametrize(
    ("changes", "data", "message"),
    [
        ({}, 3, r"^data: must be a fedsol.Dataset, a torch Dataset, a DataFrame or a dict of arrays \(got a int\)$"),
        ({"data.name": "in-memory"}, None, r"^data.name: 'in-memory' is data that was passed to fedsol.train; pass it"),
        ({"data.name": "rows.csv"}, frame(), r"^data.name: must not be set if the data is passed \(got 'rows.csv'\)$"),
        (
            {"engine.kind": "flower"},
            frame(),
            r"^engine.kind: 'flower' reads the data by its name, and this data is in",
        ),
        ({"data.target": "illl"}, frame(), r"^data.target: unknown value 'illl'; did you mean 'ill'"),
    ],
)
def test_what_cannot_be_trained_on(changes, data, message):
    with pytest.raises(fedsol.InputError, match=message):
        fedsol.train(experiment().override(changes), data=data)
