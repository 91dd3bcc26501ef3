"""fedsol personalize --save: every client's own model as a file."""

import json

import pytest

import fedsol as package
from fedsol import InputError
from fedsol.federation.federation import build_federation
from fedsol.federation.personal import fine_tuned, resolve_settings
from fedsol.federation.trained import TrainedModel
from fedsol.inference.evaluation import evaluate_on
from tests.support.cases import experiment
from tests.support.cli import fedsol
from tests.support.tensors import same_tensors

HELD_OUT = {"data__partition__held_out": 0.3}


@pytest.fixture
def run(tmp_path):
    return package.train(experiment({"name": "fedavg"}, **HELD_OUT), out=tmp_path / "run")


def saved_models(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_every_client_has_its_model_after_the_most_epochs(run, tmp_path):
    done = fedsol("personalize", run.path, "--epochs", "1,2", "--test", "held-out", "--save", "-o", tmp_path / "own")
    assert done.exit_code == 0, done.stderr
    federation = build_federation(run.experiment)
    for client in range(4):
        model = TrainedModel.load(tmp_path / "own" / "models" / f"client-{client:06d}.safetensors")
        settings = resolve_settings(federation, 2, changes={"epochs": (1, 2), "test": "held-out"})
        assert same_tensors(model.weights, fine_tuned(federation, run.weights, client, settings)[2])
        held_out = federation.dataset.train.select(federation.held_out_samples(client))
        lines = (tmp_path / "own" / "clients.jsonl").read_text().splitlines()
        result = next(row for row in map(json.loads, lines) if row["client"] == client)
        assert model.facts["metrics"]["accuracy"] == result["after"][-1]["accuracy"]
        assert evaluate_on(model, held_out)["accuracy"] == result["after"][-1]["accuracy"]


def test_a_personal_model_is_exported_like_any_other(run, tmp_path):
    package.personalize(run, changes={"epochs": (1,), "save": True}, out=tmp_path / "own")
    model = tmp_path / "own" / "models" / "client-000002.safetensors"
    done = fedsol("export", model, "-o", tmp_path / "mine.pt2")
    assert done.exit_code == 0, done.stderr
    text = (tmp_path / "mine.md").read_text()
    assert "trained by fedavg, then personalized for client 2 (finetune, 1 epoch)" in text
    assert (tmp_path / "mine.pt2").stat().st_size


def test_workers_save_the_same_models(run, tmp_path):
    changes = {"epochs": (1,), "save": True}
    package.personalize(run, changes=changes, out=tmp_path / "here")
    where = {"engine.kind": "workers", "engine.workers": 2}
    package.personalize(run, changes=changes, out=tmp_path / "workers", where=where)
    for name in saved_models(tmp_path / "here" / "models"):
        one, other = (TrainedModel.load(tmp_path / place / "models" / name) for place in ("here", "workers"))
        assert same_tensors(one.weights, other.weights)
    assert len(saved_models(tmp_path / "workers" / "models")) == 4


def test_nothing_is_saved_unless_asked_for(run, tmp_path):
    package.personalize(run, changes={"epochs": (1,)}, out=tmp_path / "own")
    assert not (tmp_path / "own" / "models").exists()


def test_what_cannot_be_saved(run, tmp_path):
    with pytest.raises(InputError, match=r"^save: requires a directory for the models \(out\)$"):
        package.personalize(run, changes={"save": True})
    with pytest.raises(
        InputError, match=r"^save: is not allowed with 'knn-per', whose model is also what it remembers"
    ):
        package.personalize(run, "knn-per", {"save": True, "mixing": 0.5}, out=tmp_path / "own")
    done = fedsol("personalize", run.path, "--method", "knn-per", "--save", "--set", "mixing=0.5")
    assert done.exit_code == 2
    assert not (run.path / "personal").exists()
