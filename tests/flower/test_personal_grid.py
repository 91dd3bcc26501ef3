"""Personal models on Flower's nodes: the same numbers as in this process, and nothing but numbers."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("flwr", reason="Flower is an optional dependency: pip install 'fedsol[flower]'")

from flwr.app import ConfigRecord, RecordDict

import fedsol
from fedsol.deployment import server
from fedsol.engines.flower import client as node
from fedsol.engines.flower import records
from fedsol.engines.flower.grid import GridEngine
from fedsol.errors import InputError, RunError
from fedsol.federation.personal import PersonalSettings
from fedsol.federation.trained import TrainedModel
from fedsol.personalization.loop import Personalizer
from fedsol.personalization.results import PersonalDirectory
from tests.support.cases import experiment
from tests.support.fake_grid import FakeGrid, deployed

HELD_OUT = {"data__partition__held_out": 0.3}
CHANGES = {"epochs": (1, 2), "test": "held-out"}


def on_nodes(run, settings, grid=None, folder=None, **options):
    grid = grid or FakeGrid(4)
    return Personalizer(engine=lambda federation: GridEngine(federation, grid, folder)).run(run, **options)


@pytest.mark.full
def test_flowers_own_simulation_has_the_results_of_this_process(tmp_path):
    pytest.importorskip("ray", reason="Flower's simulation runs on Ray")
    run = fedsol.train(experiment({"name": "fedavg"}, **HELD_OUT), out=tmp_path / "run")
    command = [sys.executable, "-m", "fedsol", "personalize", "run", "--epochs", "1,2", "--test", "held-out"]
    done = subprocess.run(
        [*command, "--set", "engine.kind=flower", "--out", "out"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert PersonalDirectory(tmp_path / "out").read_results() == fedsol.personalize(run, changes=CHANGES).results


@pytest.mark.parametrize(("name", "method"), [("fedsol", None), ("perfedavg", None), ("fedbabu", "knn-per")])
def test_a_simulated_federation_has_the_results_of_this_process(name, method):
    settings = experiment({"name": name}, **HELD_OUT)
    run = fedsol.train(settings)
    expected = fedsol.personalize(run, method, CHANGES)
    assert on_nodes(run, settings, method=method, changes=CHANGES) == expected


def test_a_node_answers_with_numbers_and_nothing_else(monkeypatch):
    answers = []
    original = records.personal_answer

    def answer(result):
        answers.append(original(result))
        return answers[-1]

    monkeypatch.setattr(node.records, "personal_answer", answer)
    settings = experiment({"name": "fedavg"}, **HELD_OUT)
    on_nodes(fedsol.train(settings), settings, changes=CHANGES)
    assert len(answers) == 4
    for content in answers:
        assert not content.array_records
        values = json.loads(content.config_records["config"]["personal"])
        assert sorted(values) == ["after", "before", "classes", "client", "size", "test_size"]


def test_a_node_that_is_away_can_be_asked_again(tmp_path):
    settings = experiment({"name": "fedavg"}, **HELD_OUT, engine__patience=0.1)
    run, grid = deployed(settings, tmp_path)
    (away,) = (number for number, config in grid.configs.items() if config["partition-id"] == 2)
    grid.offline.add(away)
    options = {"folder": tmp_path / "run", "changes": CHANGES, "out": tmp_path / "results"}
    with pytest.raises(RunError, match=r"no result from clients \[2\]"):
        on_nodes(tmp_path / "run", settings, grid, **options)
    grid.offline.clear()
    found = on_nodes(tmp_path / "run", settings, grid, resume=True, **options)
    assert found.results == fedsol.personalize(run, changes=CHANGES).results


def test_a_failure_on_a_simulated_node_stops_everything(monkeypatch):
    def fails(federation, weights, client, settings, folder):
        raise InputError("on purpose")

    monkeypatch.setattr("fedsol.federation.tasks.personalize_client", fails)
    settings = experiment({"name": "fedavg"}, **HELD_OUT)
    with pytest.raises(RunError, match="failed in Flower's simulation: on purpose"):
        on_nodes(fedsol.train(settings), settings, changes=CHANGES)


@pytest.mark.parametrize("text", [None, "no JSON", "{}", "3"])
def test_an_answer_that_is_no_result_is_malformed(text):
    content = RecordDict({"config": ConfigRecord({} if text is None else {"personal": text})})
    with pytest.raises(records.MalformedError):
        records.personal_from(content, 0, PersonalSettings())


def test_a_node_speaks_for_itself_only():
    settings = experiment({"name": "fedavg"})
    result = fedsol.personalize(fedsol.train(settings), changes={"epochs": (0,)}).results[1]
    with pytest.raises(records.MalformedError, match="speaks for client 1"):
        records.personal_from(records.personal_answer(result), 0, PersonalSettings(epochs=(0,)))
    with pytest.raises(records.MalformedError, match=r"has results after \(0,\) epochs; must be \(1, 5\)"):
        records.personal_from(records.personal_answer(result), 1, PersonalSettings())


def test_a_server_may_ask_for_personal_models_at_the_end(tmp_path):
    settings = experiment({"name": "fedavg"}, **HELD_OUT)
    (tmp_path / "experiment.toml").write_text(settings.to_toml())
    config = {"out": str(tmp_path / "run"), "personalize": "knn-per; test=held-out; epochs=[1]; k=3"}
    grid = FakeGrid(4, tmp_path / "states")
    server.run(tmp_path / "experiment.toml", config, grid)
    kept = PersonalDirectory(tmp_path / "run" / "personal" / "knn-per")
    changes = {"test": "held-out", "epochs": (1,), "k": 3}
    assert kept.read_results() == fedsol.personalize(fedsol.train(settings), "knn-per", changes).results
    assert (kept.path / "clients.csv").is_file()
    server.run(tmp_path / "experiment.toml", {**config, "resume": True}, grid)  # nothing is left to do


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("finetun", r"method: must be .* \(got 'finetun'\)"),
        ("finetune; test=held-out", "clients of this run have no hold-out set"),
        ("knn-per; mixing=chosen", "clients of this run have no hold-out set to choose it on"),
        ("finetune; after_round=3", "'after_round' is not allowed"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_before_the_first_round(tmp_path, text, part):
    settings = experiment({"name": "fedavg"})
    (tmp_path / "experiment.toml").write_text(settings.to_toml())
    with pytest.raises(InputError, match=part):
        server.run(
            tmp_path / "experiment.toml",
            {"out": str(tmp_path / "run"), "personalize": text},
            FakeGrid(4, tmp_path / "states"),
        )
    assert not (tmp_path / "run").exists()


def test_models_of_a_run_that_was_lengthened_get_a_folder_of_their_own(tmp_path):
    settings = experiment({"name": "fedavg"}, rounds=1)
    fedsol.train(settings, out=tmp_path)
    assert server._personal_place(tmp_path, "finetune").path == tmp_path / "personal" / "finetune"
    fedsol.personalize(tmp_path, changes={"epochs": (0,)}, out=tmp_path / "personal" / "finetune")
    assert server._personal_place(tmp_path, "finetune").path == tmp_path / "personal" / "finetune"
    fedsol.train(settings.override({"rounds": 2}), out=tmp_path, resume=True)
    assert server._personal_place(tmp_path, "finetune").path == tmp_path / "personal" / "finetune-2"


def test_saved_models_stay_on_the_nodes_own_disks(tmp_path):
    settings = experiment({"name": "fedavg"}, **HELD_OUT)
    run, grid = deployed(settings, tmp_path)
    found = on_nodes(run, settings, grid, run.path, changes={**CHANGES, "save": True}, out=tmp_path / "personal")
    assert len(found.results) == 4
    assert not (tmp_path / "personal" / "models").exists()
    models = tmp_path / "states" / run.files.read_id() / "models"
    assert [path.name for path in sorted(models.iterdir())] == [
        f"client-{client:06d}.safetensors" for client in range(4)
    ]
    for client, result in enumerate(found.results):
        model = TrainedModel.load(models / f"client-{client:06d}.safetensors")
        assert model.facts["metrics"]["accuracy"] == result.after[-1].accuracy


def test_a_simulation_saves_no_models(tmp_path):
    run = fedsol.train(experiment({"name": "fedavg"}, **HELD_OUT))
    with pytest.raises(InputError, match=r"^save: is not allowed in Flower's simulation; use engine.kind = 'workers'"):
        on_nodes(run, None, changes={**CHANGES, "save": True}, out=tmp_path / "personal")
