"""fedsol predict, evaluate and export, as a user calls them."""

import csv
import json

import numpy as np
import pytest
from PIL import Image

import fedsol as package
from tests.support.cases import experiment
from tests.support.cli import fedsol


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return package.train(experiment({"name": "fedavg"}), out=tmp_path_factory.mktemp("runs") / "run")


def test_predict_writes_a_table(run, tmp_path):
    for number in range(3):
        Image.new("L", (8, 8), 80 * number).save(tmp_path / f"{number}.png")
    done = fedsol("predict", run.path, tmp_path, "-o", tmp_path / "out" / "predictions.csv")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.endswith("predictions.csv: 3 predictions\n")
    with (tmp_path / "out" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    images = np.stack([np.full((8, 8), 80 * number, np.uint8) for number in range(3)])
    expected = run.predict(images)
    assert [row["sample"] for row in rows] == ["0.png", "1.png", "2.png"]
    assert [row["label"] for row in rows] == expected.label_names
    assert [float(row["p_4"]) for row in rows] == pytest.approx(expected.probabilities[:, 4].tolist())


def test_evaluate_prints_the_metrics(run, tmp_path):
    test = np.random.default_rng(0)
    x, y = test.integers(0, 256, (6, 8, 8)).astype(np.uint8), np.arange(6)
    np.savez(tmp_path / "other.npz", x=x, y=y)
    done = fedsol("evaluate", run.path, "--data", tmp_path / "other.npz", "--json")
    assert json.loads(done.stdout) == run.evaluate((x, y))
    own = fedsol("evaluate", run.path)
    assert f"{run.rows[-1]['test_loss']:.6g}" in own.stdout
    assert own.exit_code == 0


def test_a_saved_model_is_used_like_a_run(run, tmp_path):
    done = fedsol("export", run.path, "-o", tmp_path / "model.safetensors")
    assert done.exit_code == 0
    assert "model.md" in done.stdout
    again = fedsol("evaluate", tmp_path / "model.safetensors", "--json")
    assert json.loads(again.stdout) == run.evaluate()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "RUN", "-o", "model.pth"], "error: -o: unknown value '.pth'; did you mean '.pt2'?"),
        (["export", "nowhere", "-o", "model.pt2"], "error: nowhere: no run here (no experiment.toml)"),
        (["export", "none.safetensors", "-o", "model.pt2"], "error: none.safetensors: cannot be read: No such file"),
        (["predict", "RUN", "nothing.npz"], "error: nothing.npz: no such file or folder"),
        (["predict", "RUN", "x", "-o", "x.xlsx"], "error: -o: unknown value '.xlsx'; allowed: .csv, .npz"),
        (["evaluate", "RUN", "--which", "best"], "error: which: 'best' is not allowed: the run has no validation set"),
        (["evaluate", "RUN", "--data", "nothing"], "error: nothing: no such file or folder"),
    ],
)
def test_bad_input_is_one_message(run, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = fedsol(*[run.path if argument == "RUN" else argument for argument in arguments])
    assert done.exit_code == 2
    assert done.stderr.startswith(message)
    assert not list(tmp_path.iterdir())


def test_predictions_do_not_replace_the_data(run, tmp_path):
    path = tmp_path / "new.npz"
    np.savez(path, inputs=np.zeros((2, 8, 8), np.uint8))
    before = path.read_bytes()
    done = fedsol("predict", run.path, path, "-o", path)
    assert (done.exit_code, done.stderr) == (2, f"error: -o: must not be the data itself (got {str(path)!r})\n")
    assert path.read_bytes() == before
