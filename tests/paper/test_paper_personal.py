"""fedsol reproduce with every client's own model."""

import json
import shutil
from pathlib import Path

import pytest

from fedsol.paper import registry
from fedsol.paper.numbers import Heading
from fedsol.paper.personal import PersonalAccuracy
from fedsol.paper.recipe import Cell, TrainedTable
from tests.support.small_recipe import fedsol, know, runs_in, small

pytestmark = pytest.mark.usefixtures("small_recipe")


def test_personal_models_of_a_run(monkeypatch):
    from fedsol.personalization.loop import personalize
    from fedsol.personalization.statistics import accuracies_after

    def cells():
        made = [("fedavg", "1"), ("fedavg", "5"), ("knn-per", "1")]
        return [
            Cell(("", f"{method}, e = {epochs}", "digits"), {"method": method, "epochs": epochs}, small("fedavg"))
            for method, epochs in made
        ]

    know(monkeypatch, TrainedTable(Heading("own", "Own", "tab:small"), cells(), evaluation=PersonalAccuracy()))
    done = fedsol("reproduce", "own", "--seeds", "0", "--rounds", "1")
    assert done.exit_code == 0, done.output
    found = [cell["ours"]["mean"] for cell in json.loads(Path("runs/paper/own.json").read_text())["cells"]]
    (run,) = runs_in()
    expected = []
    for method, epochs in (("finetune", 1), ("finetune", 5), ("knn-per", 1)):
        values = accuracies_after(personalize(Path("runs/paper") / run, method).results, epochs).values()
        known = [100 * value for value in values if value is not None]
        expected.append(sum(known) / len(known))
    assert found == pytest.approx(expected)
    assert "1 of 3 rounds" in done.output
    assert "fedavg, seed 0, personal models: 6/6 clients" in done.output
    assert "done already" not in done.output  # e = 5 is of the same models as e = 1


def test_personal_models_that_are_there_stay_in_the_table(monkeypatch):
    def cells():
        return [
            Cell(("", method, "digits"), {"method": method, "epochs": "1"}, small(algorithm))
            for method, algorithm in (("fedavg", "fedavg"), ("fedprox", "fedprox"), ("knn-per", "fedavg"))
        ]

    know(monkeypatch, TrainedTable(Heading("own", "Own", "tab:small"), cells(), evaluation=PersonalAccuracy()))

    def filled(method):
        done = fedsol("reproduce", "own", "--seeds", "0", "--rounds", "1", "--only", f"method={method}")
        assert done.exit_code == 0, done.output
        return [cell["row"] for cell in json.loads(Path("runs/paper/own.json").read_text())["cells"] if cell["ours"]]

    assert filled("fedavg") == ["fedavg"]  # the run of kNN-Per is there too, its models are not
    assert filled("fedprox") == ["fedavg", "fedprox"]
    (checkpoints,) = Path("runs/paper").glob("*/fedprox*/seed-0/checkpoints")
    shutil.rmtree(checkpoints)  # nothing to check its models against any more
    assert filled("knn-per") == ["fedavg", "knn-per"]


def test_what_is_made_for_a_chosen_cell_fills_others_too(monkeypatch):
    def cells():
        return [
            Cell(("", f"e = {epochs}", "digits"), {"method": "fedavg", "epochs": epochs}, small("fedavg"))
            for epochs in ("1", "5")
        ]

    know(monkeypatch, TrainedTable(Heading("own", "Own", "tab:small"), cells(), evaluation=PersonalAccuracy()))
    assert fedsol("reproduce", "own", "--seeds", "0", "--rounds", "1", "--only", "epochs=5").exit_code == 0
    assert all(cell["ours"] for cell in json.loads(Path("runs/paper/own.json").read_text())["cells"])


def test_nobody_takes_part_in_rounds_of_local_only(monkeypatch):
    def cells():
        run = small("local-only").override({"rounds": 1, "algorithm.epochs": 2})
        return [Cell(("", "Local-only", "digits"), {"method": "local-only", "epochs": "2"}, run)]

    know(monkeypatch, TrainedTable(Heading("alone", "Alone", "tab:small"), cells(), evaluation=PersonalAccuracy()))
    estimated = fedsol("reproduce", "alone", "--seeds", "0", "--rounds", "2", "--estimate")
    assert estimated.exit_code == 0, estimated.output
    assert "1 runs, 1 still to run; models for all clients × 1: about" in estimated.output
    done = fedsol("reproduce", "alone", "--seeds", "0", "--rounds", "2")
    assert done.exit_code == 0, done.output
    assert "[a] differs from the paper: 1 of 3 seeds\n" in done.output
    estimated = fedsol("reproduce", "alone", "--seeds", "0", "--estimate")
    assert "1 runs, all already finished. Nothing was run." in estimated.output


def test_personal_models_are_estimated_by_a_round_of_everybody(tmp_path):
    cell = next(one for one in registry.find_recipe("personalized").cells if one.facts["method"] == "local-only")
    work = PersonalAccuracy().remaining_work(cell, cell.experiment, tmp_path)
    assert (work.rounds, work.server.fraction, work.client.epochs) == (1, 1.0, 200)
    assert work.algorithm["name"] == "fedavg"
