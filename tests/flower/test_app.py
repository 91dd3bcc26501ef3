"""Apps that are written for Flower, and bytes that go through it."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is an optional dependency: pip install 'fedsol[flower]'")

from flwr.app import Context, RecordDict
from typer.testing import CliRunner

import fedsol
from fedsol import Experiment, InputError
from fedsol.cli import flower as cli_flower
from fedsol.cli.app import app
from fedsol.deployment import server
from fedsol.federation.federation import build_federation
from fedsol.studies.estimate import bytes_per_client
from tests.support.cases import experiment
from tests.support.fake_grid import FakeGrid, simulated


def call(*arguments):
    return CliRunner().invoke(app, ["flower", *map(str, arguments)])


def test_an_app_has_what_flower_needs(tmp_path):
    done = call("app", "-o", tmp_path / "app", "--run", tmp_path / "run", "--set", "rounds=3", "--name", "my-app")
    assert done.exit_code == 0, done.output
    project = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    assert project["project"]["name"] == "my-app"
    assert project["tool"]["flwr"]["app"]["config"] == {
        "out": str(tmp_path / "run"),
        "resume": False,
        "set": "",
        "personalize": "",
    }
    written = Experiment.load(tmp_path / "app" / "fedsol_app" / "experiment.toml")
    assert written.rounds == 3
    assert written.data.partition.clients == 100
    loads = "import fedsol_app.server_app, fedsol_app.client_app"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", loads], cwd=tmp_path / "app", capture_output=True)
    assert done.returncode == 0, done.stderr


def test_flower_itself_accepts_it(tmp_path):
    assert call("app", "-o", tmp_path / "app").exit_code == 0
    command = [Path(sys.executable).with_name("flwr"), "build", "--app", "app"]
    environment = {**os.environ, "FLWR_HOME": str(tmp_path / "home"), "FLWR_TELEMETRY_ENABLED": "0"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (bundle,) = tmp_path.glob("*.fab")
    assert bundle.stat().st_size < 100_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "algorithm.name=fedsoul"], "algorithm.name: unknown value 'fedsoul'"),
        (["--set", "data.name=private"], "data.private.shape: is missing"),
        (["--name", "My App"], "--name: must be lowercase letters"),
        (
            ["--set", "privacy.epsilon=8", "--set", "server.weighting=size"],
            "server.weighting: 'size' is not allowed with",
        ),
    ],
)
def test_bad_input_is_one_message_and_nothing_is_written(arguments, message, tmp_path):
    done = call("app", "-o", tmp_path / "app", *arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert not (tmp_path / "app").exists()


def test_a_folder_in_use_and_a_folder_without_an_app(tmp_path):
    (tmp_path / "file").touch()
    assert "must be empty" in call("app", "-o", tmp_path).output
    done = call("run", tmp_path)
    assert done.exit_code == 2
    assert "must be a Flower app" in done.output


@pytest.fixture
def an_app(tmp_path):
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "algorithm.name='fedavg'"], "--set: values with ' or ; are not allowed here"),
        (["--set", "rounds=1;seed=2"], "--set: values with ' or ; are not allowed here"),
        (["--personalize", "fine'tune"], "--personalize: values with ' are not allowed (got fine'tune)"),
    ],
)
def test_what_flowers_command_could_not_pass_on_is_refused(arguments, message, an_app):
    done = call("run", an_app, *arguments)
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.parametrize(
    ("started", "statuses", "code", "message"),
    [
        ("7", ["running", "finished:completed"], 0, ""),
        ("7", ["finished:failed"], 1, "the run 7 on home is finished:failed; its output is above"),
        ("7", [None], 1, "the run 7 on home is unknown: its SuperLink does not answer"),
        (None, [], 1, "on home is not started"),
    ],
)
def test_how_a_run_on_a_superlink_ended(started, statuses, code, message, an_app, monkeypatch):
    commands, answers = [], iter(statuses)

    def answer(command, **_):
        status = next(answers)
        return subprocess.CompletedProcess(command, 0, json.dumps({"runs": [{"status": status}]}) if status else "")

    monkeypatch.setattr(cli_flower, "_stream", lambda command: commands.append(command) or started)
    monkeypatch.setattr(cli_flower.subprocess, "run", answer)
    monkeypatch.setattr(cli_flower.time, "sleep", lambda _: None)
    changes = ["--set", "rounds=3", "--set", "seed=2", "--personalize", "finetune; test=held-out"]
    done = call("run", an_app, "home", "--resume", *changes)
    assert (done.exit_code, message in done.output) == (code, True)
    config = "resume=true set='rounds=3;seed=2' personalize='finetune; test=held-out'"
    assert commands[0][1:] == ["run", str(an_app), "home", "--stream", "--run-config", config]


@pytest.mark.parametrize(
    ("raised", "shown"),
    [
        (InputError("rounds: wrong"), "error: rounds: wrong"),
        (KeyboardInterrupt(), "interrupted: finished rounds are saved"),
    ],
)
def test_flower_hears_of_a_failure_and_its_log_says_why(raised, shown, tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise raised

    monkeypatch.setattr(server, "run", fail)
    with pytest.raises(server.FailedError):
        server.make_server_app(tmp_path / "experiment.toml")(FakeGrid(1), Context(1, 0, {}, RecordDict(), {}))
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize("name", ["fedsol", "scaffold", "fednova", "moon"])
def test_bytes_through_flower_are_those_of_the_estimate(name):
    """Within 2 % of what is really serialized, for a model whose weights outweigh names and headers."""
    settings = experiment(
        {"name": name}, model__options={"hidden": 1000}, rounds=2, engine__kind="flower", server__evaluate_every=2
    )
    run, grid = simulated(settings)
    per_client = bytes_per_client(build_federation(settings))
    clients = sum(row["clients"] for row in run.rows)
    travels = per_client.state  # in a simulation a client's state goes with its job and comes with its update
    assert grid.bytes_down == pytest.approx(clients * (per_client.down + travels), rel=0.02)
    assert grid.bytes_up == pytest.approx(clients * (per_client.up + travels), rel=0.02)
    assert sum(row["bytes_down"] for row in run.rows) == clients * per_client.down
    assert sum(row["bytes_up"] for row in run.rows) == clients * per_client.up


def test_in_a_deployment_no_state_travels(tmp_path):
    from fedsol.engines.flower.grid import GridEngine

    settings = experiment({"name": "scaffold"}, model__options={"hidden": 1000}, rounds=2)
    federation = build_federation(settings)
    grid = FakeGrid(federation.clients, tmp_path / "states")
    out = tmp_path / "run"
    run = fedsol.train(settings, out=out, engine=lambda federation: GridEngine(federation, grid, out))
    clients = sum(row["clients"] for row in run.rows)
    per_client = bytes_per_client(federation)
    assert grid.bytes_down == pytest.approx(clients * per_client.down, rel=0.02)
    assert grid.bytes_up == pytest.approx(clients * per_client.up, rel=0.02)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"out": "relative"}, "out: must be an absolute path in the run configuration"),
        ({"set": "privacy.clipping=server"}, r"\[privacy\] cannot be changed in the run configuration"),
        ({"set": "rounds=0"}, r"rounds: must be greater than or equal to 1 \(got 0\)"),
    ],
)
def test_what_the_server_app_refuses_before_it_writes_anything(config, message, tmp_path):
    settings = experiment({"name": "fedavg"})
    (tmp_path / "experiment.toml").write_text(settings.to_toml())
    with pytest.raises(InputError, match=message):
        server.run(tmp_path / "experiment.toml", {"out": str(tmp_path / "run"), **config}, FakeGrid(4))
    assert not (tmp_path / "run").exists()
