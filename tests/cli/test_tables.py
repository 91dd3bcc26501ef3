"""Tables from the command line: real data as CSV files, and bad input in one message."""

import json

import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes

from tests.support.cli import fedsol


def options(**settings):
    return [part for key, value in settings.items() for part in ("--set", f"{key.replace('__', '.')}={value}")]


def table(path, frame):
    frame.to_csv(path, index=False)
    return path


def cancer() -> pd.DataFrame:
    frame = load_breast_cancer(as_frame=True).frame
    frame["diagnosis"] = frame.pop("target").map({0: "malignant", 1: "benign"})
    return frame.assign(hospital=[f"hospital {row % 3}" for row in range(len(frame))])


CANCER = options(data__target="diagnosis", data__client="hospital", data__test_fraction=0.25)
QUICK = options(rounds=3, client__epochs=3, client__lr=0.05, server__fraction=1.0, algorithm__name="fedavg")


def rows_of(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def test_breast_cancer_from_a_csv_file_with_a_client_column(tmp_path):
    path = table(tmp_path / "cancer.csv", cancer())
    common = (*CANCER, *QUICK, "--set", f"data.name={path}")
    found = {}
    for engine in ("local", "workers"):
        out = tmp_path / engine
        result = fedsol("run", *common, "--set", f"engine.kind={engine}", "--out", out)
        assert result.exit_code == 0, result.output
        found[engine] = rows_of(out)
    assert found["local"] == found["workers"]
    assert found["local"][-1]["test_accuracy"] > 0.9
    assert found["local"][-1]["clients"] == 3
    stopped = tmp_path / "stopped"
    local = (*common, "--set", "engine.kind=local", "--out", stopped)
    assert fedsol("run", *local, "--set", "rounds=1").exit_code == 0
    assert fedsol("run", *local, "--resume").exit_code == 0
    assert rows_of(stopped) == found["local"]


def test_diabetes_with_a_category_is_a_regression(tmp_path):
    frame = load_diabetes(as_frame=True, scaled=False).frame
    path = table(tmp_path / "diabetes.csv", frame.assign(sex=frame["sex"].map({1: "f", 2: "m"})))
    settings = options(data__target="target", data__test_fraction=0.25, task__kind="regression")
    partition = options(data__partition__kind="iid", data__partition__clients=3, engine__kind="local")
    out = tmp_path / "run"
    result = fedsol("run", *QUICK, *settings, *partition, "--set", f"data.name={path}", "--out", out)
    assert result.exit_code == 0, result.output
    first, *_, last = rows_of(out)
    assert last["test_rmse"] < frame["target"].std()  # better than guessing the mean
    assert last["test_loss"] < first["test_loss"]


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (
            {},
            {"data__target": "diagnose"},
            "data.target: unknown value 'diagnose'; did you mean 'diagnosis'? The",
        ),
        ({"mean area": float("nan")}, {}, "column 'mean area' has no values; leave it out of data.features"),
        ({"hospital": None}, {}, "data.client: 'hospital' has 569 missing values, the first in row 1"),
        (
            {},
            {"task__kind": "regression"},
            "data.target: column 'diagnosis' must be numbers (got 'malignant' in",
        ),
        (
            {},
            {"task__kind": "regression", "data__partition__kind": "dirichlet"},
            "data.partition.kind: 'dirichlet' splits by the class of a sample, and a regression has none; allowed: iid",
        ),
    ],
)
def test_bad_tables_are_one_message(tmp_path, change, settings, message):
    path = table(tmp_path / "cancer.csv", cancer().assign(**change))
    changed = options(**settings, data__name=path)
    result = fedsol("run", *CANCER, *QUICK, *changed, "--out", tmp_path / "run")
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.stderr.split())
    assert not (tmp_path / "run").exists()


def test_a_test_file_with_an_unseen_class(tmp_path):
    frame = cancer()
    path = table(tmp_path / "train.csv", frame[frame["diagnosis"] == "benign"])
    other = table(tmp_path / "test.csv", frame)
    settings = options(data__target="diagnosis", data__client="hospital", data__name=path, data__test=other)
    result = fedsol("run", *QUICK, *settings, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "test.csv: the test label malignant does not occur among the training labels" in result.stderr


def test_a_partition_is_shown_by_the_names_of_clients_and_classes(tmp_path):
    path = table(tmp_path / "cancer.csv", cancer())
    result = fedsol("partition", *CANCER, "--set", f"data.name={path}", "--out", tmp_path / "partition")
    assert result.exit_code == 0, result.output
    lines = [line.replace("│", " ").replace("┃", " ").split() for line in result.stdout.splitlines()]
    assert ["client", "samples", "benign", "malignant"] in lines
    assert ["hospital", "1"] in [line[:2] for line in lines]
    numbers = options(data__target="mean area", task__kind="regression", data__features='["mean radius"]')
    result = fedsol("partition", *CANCER, *numbers, "--set", f"data.name={path}", "--out", tmp_path / "numbers")
    assert result.exit_code == 0, result.output
    assert "classes per client" not in result.stdout
