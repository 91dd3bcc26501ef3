"""`fedsol personalize`: what it leaves behind, what it says, and what it refuses."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

import fedsol as library
from fedsol.cli.app import app
from fedsol.cli.personalize import _comparison_with_alone
from tests.support.cases import experiment


def fedsol(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A run of FedAvg and one of Local-only, of the same clients."""
    folder = tmp_path_factory.mktemp("runs")
    library.train(experiment({"name": "fedavg"}), out=folder / "fedavg")
    library.train(experiment({"name": "local-only", "epochs": 2}), out=folder / "alone")
    return folder


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_single_run(folders):
    done = fedsol("personalize", folders / "fedavg", "--epochs", "1,2")
    assert done.exit_code == 0, done.output
    out = folders / "fedavg" / "personal" / "finetune"
    assert "4/4 clients" in done.output
    assert str(out) in done.output.replace("\n", "")
    assert (out / "clients.csv").read_text().startswith("client,size,classes,test_size,before,after_1,after_2\n")
    summary = json.loads((out / "summary.json").read_text())
    assert [row["epochs"] for row in summary["after"]] == [1, 2]
    for picture in ("distribution.png", "sizes.png"):
        with Image.open(out / picture) as image:
            assert image.width > 600
    again = fedsol("personalize", folders / "fedavg", "--epochs", "1,2")
    assert again.exit_code == 2
    assert "already has results" in again.output
    assert fedsol("personalize", folders / "fedavg", "--epochs", "1,2", "--resume").exit_code == 0
    assert not list(Path.cwd().iterdir())


def test_several_runs_and_who_loses(folders):
    done = fedsol("personalize", folders / "alone", folders / "fedavg", "--epochs", "1", "--out", "all")
    assert done.exit_code == 0, done.output
    assert "clients do better alone" in done.output or "no client does better alone" in done.output
    rows = json.loads(Path("all/table.json").read_text())
    assert [(row["label"], row["epochs"]) for row in rows] == [("local-only", 2), ("fedavg + finetune", 1)]
    lost = rows[1]["losers"]
    assert lost["of"] == 4
    table = Path("all/fedavg/clients.csv").read_text().splitlines()
    assert table[0].endswith("local_only,loses_1")
    assert sum(line.endswith(",1") for line in table[1:]) == len(lost["clients"])
    again = fedsol("personalize", "all/fedavg", "--against", "all/alone", "--out", "one")
    assert again.exit_code == 0, again.output
    assert json.loads(Path("one/table.json").read_text()) == rows[1:]
    explicit = fedsol("personalize", folders / "alone", "--method", "local-only", "--epochs", "1", "--out", "short")
    assert explicit.exit_code == 0, explicit.output
    assert json.loads(Path("short/table.json").read_text())[0]["epochs"] == 1
    joined = fedsol("personalize", "all/fedavg", "all/alone", "--out", "joined")
    assert joined.exit_code == 0, joined.output
    assert sorted(path.name for path in Path("joined").iterdir()) == ["distribution.png", "sizes.png", "table.json"]


def test_a_folder_stands_for_the_runs_below_it(folders):
    done = fedsol("personalize", folders, "--method", "finetune", "--epochs", "1", "--out", "all")
    assert done.exit_code == 0, done.output
    names = {run.name for run in folders.iterdir() if (run / "metrics.jsonl").is_file()}
    assert {path.name for path in Path("all").iterdir() if path.is_dir()} == names
    assert len(names) > 1


def test_settings_on_the_command_line(folders):
    options = ["--method", "knn-per", "--epochs", "0", "--set", "k=3", "--set", "engine.workers=1", "--out", "here"]
    done = fedsol("personalize", folders / "fedavg", *options)
    assert done.exit_code == 0, done.output
    settings = json.loads(Path("here/personal.json").read_text())["settings"]
    assert (settings["method"], settings["k"], settings["epochs"]) == ("knn-per", 3, [0])
    assert json.loads(Path("here/environment.json").read_text()).keys() >= {"command", "started", "packages"}


BAD = {
    "no run": (["nowhere"], ["nowhere: no such directory"]),
    "unknown method": (["RUN", "--method", "finetun"], ["--method: unknown value 'finetun'", "'finetune'"]),
    "bad epochs": (["RUN", "--epochs", "one"], ["--epochs: must be whole numbers such as 0,1,2 (got 'one')"]),
    "unknown test": (["RUN", "--test", "own"], ["--test: unknown value 'own'; allowed: held-out, matched"]),
    "nothing held out": (["RUN", "--test", "held-out"], ["test: 'held-out'", "held_out=0.2"]),
    "the run's own": (["RUN", "--set", "client.lr=0.1"], ["--set client.lr: cannot be changed after the run"]),
    "unknown setting": (["RUN", "--set", "capasity=3"], ["capasity: unknown key", "'capacity'"]),
    "a round": (["RUN", "--set", "after_round=3"], ["'after_round'"]),
    "epochs as a setting": (["RUN", "--set", "epochs=3"], ["use --epochs"]),
    "nothing held out to choose on": (["RUN", "-m", "knn-per", "--set", "mixing=chosen"], ["mixing: 'chosen'"]),
    "twice": (["RUN", "RUN"], ["each run must be given only once"]),
    "against nothing": (["RUN", "--epochs", "0", "--against", "nowhere"], ["nowhere", "no personal.json"]),
    "other data": (
        ["RUN", "--set", "data.root=elsewhere", "--set", "k=many"],
        ["k: must be a valid integer (got 'many')"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_message(folders, case):
    arguments, parts = BAD[case]
    done = fedsol("personalize", *(folders / "fedavg" if text == "RUN" else text for text in arguments), "--out", "out")
    assert done.exit_code == 2, done.output
    assert len(done.output.strip().splitlines()) == 1, done.output
    for part in parts:
        assert part in done.output
    assert not list(Path.cwd().iterdir()), "something was left behind"


def test_results_do_not_go_into_the_directory_of_a_run(folders, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folders / "fedavg", run)
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    done = fedsol("personalize", run, "--epochs", "0", "--out", run)
    assert done.exit_code == 2, done.output
    assert "is a run directory" in done.output
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


def test_everything_is_looked_at_before_the_first_client_trains(folders, tmp_path):
    """A second argument that will not do must not cost the work on the first."""
    without = tmp_path / "without"
    shutil.copytree(folders / "alone", without)
    shutil.rmtree(without / "checkpoints")
    unfinished = tmp_path / "unfinished"
    assert fedsol("personalize", folders / "alone", "--out", unfinished).exit_code == 0
    (unfinished / "clients.jsonl").write_text("")
    again = tmp_path / ".." / tmp_path.name / "without"
    others = tmp_path / "others"
    stranger = library.train(experiment({"name": "local-only"}, seed=1))
    library.personalize(stranger, changes={"epochs": (1,)}, out=others)
    cases = {
        (folders / "fedavg", without): "has no global model yet",
        (folders / "fedavg", unfinished): "is not finished (0 of 4 clients)",
        (without, again): "each run must be given only once",
        (folders / "fedavg", "--against", others): "must have the same clients and test sets as the runs",
    }
    for arguments, part in cases.items():
        done = fedsol("personalize", *arguments, "--epochs", "1", "--out", "out")
        assert done.exit_code == 2
        assert part in done.output
        assert not Path("out").exists()


def test_ctrl_c_saves_and_says_how_to_go_on(folders):
    code = (
        "import os, signal, fedsol.personalization.results as results\n"
        "append = results.PersonalDirectory.append\n"
        "def interrupted(self, result):\n"
        "    append(self, result)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "results.PersonalDirectory.append = interrupted\n"
        "from fedsol.__main__ import main; main()"
    )
    command = [sys.executable, "-c", code, "personalize", str(folders / "fedavg"), "--epochs", "1", "--out", "here"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert "--resume" in done.stdout
    assert len(Path("here/clients.jsonl").read_text().splitlines()) == 1
    assert fedsol("personalize", folders / "fedavg", "--epochs", "1", "--out", "here", "--resume").exit_code == 0
    assert len(Path("here/clients.jsonl").read_text().splitlines()) == 4


def test_who_loses_is_said_in_a_sentence():
    nobody = {"label": "fedavg", "epochs": 2, "losers": {"clients": []}}
    assert _comparison_with_alone(nobody) == "fedavg, 2 epochs: no client does better alone."
    one = {
        "clients": [3],
        "of": 4,
        "mean_loss": 0.02,
        "largest_loss": 0.02,
        "median_size": 5.0,
        "others_median_size": None,
    }
    said = _comparison_with_alone({**nobody, "losers": one})
    assert said.startswith(
        "fedavg, 2 epochs: 1 of 4 clients do better alone, by 2.00 points on average and 2.00 at most;"
    )
