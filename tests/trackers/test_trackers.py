"""Trackers: the names of metrics.jsonl arrive, resumed runs go on, and a tool in trouble never stops a run."""

import json
import logging
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedsol
from fedsol import trackers
from fedsol.cli.app import app
from fedsol.errors import InputError, RunError
from fedsol.trackers.base import Tracker, metrics_of

SCALARS = {"test_accuracy", "test_loss", "train_loss", "clients", "examples", "seconds", "bytes_up", "bytes_down"}


def need(name: str) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed: pip install 'fedsol[{name}]'")


@pytest.fixture
def remembering(monkeypatch):
    """A tracker that keeps what it gets."""

    class Remembering(Tracker):
        name = "tensorboard"
        sent: dict = {}  # noqa: RUF012 (one for all instances: it outlives a resumed run)
        closed: list = []  # noqa: RUF012

        def open(self, experiment, identity, rounds):
            return identity or "first", max(self.sent, default=0)

        def send(self, step, metrics):
            assert step not in self.sent
            self.sent[step] = metrics

        def close(self, complete):
            self.closed.append(complete)

    monkeypatch.setattr("fedsol.trackers.base.check_tracker", lambda name: None)
    return Remembering


def test_metrics_have_the_names_of_the_rows():
    row = {"round": 3, "test_accuracy": 0.5, "train_loss": None, "clients": 4, "client_ids": [1, 2], "flag": True}
    row |= {"class_accuracy": [0.25, None, 1.0], "by": {"layer": 2.0}, "bad": float("nan"), "word": "x"}
    assert metrics_of(row) == {
        "test_accuracy": 0.5,
        "clients": 4,
        "class_accuracy/0": 0.25,
        "class_accuracy/2": 1.0,
        "by/layer": 2.0,
    }


def test_a_run_that_goes_on_is_the_same_tracked_run(tiny, tmp_path, remembering):
    out = tmp_path / "run"

    class Stop(fedsol.Callback):
        def round_finished(self, result):
            raise RunError("stopped by the test")

    with pytest.raises(RunError, match="stopped"):
        fedsol.train(tiny, [remembering(out), Stop()], out)
    fedsol.train(tiny, [remembering(out)], out, resume=True)
    assert sorted(remembering.sent) == [1, 2]
    assert remembering.closed == [False, True]
    assert json.loads((out / "trackers.json").read_text()) == {"tensorboard": "first"}


def test_rounds_before_tracking_began_are_sent_as_well(tiny, tmp_path, remembering):
    fedsol.train(tiny, out=tmp_path / "run")
    fedsol.train(tiny, [remembering(tmp_path / "run")], tmp_path / "run", resume=True)
    assert sorted(remembering.sent) == [1, 2]


def test_without_a_directory_nothing_is_remembered(tiny, tmp_path, remembering):
    fedsol.train(tiny, [remembering(tmp_path / "nowhere")])
    assert sorted(remembering.sent) == [1, 2]
    assert not list(tmp_path.iterdir())


def test_a_tool_in_trouble_is_left_out_and_the_run_goes_on(tiny, tmp_path, remembering, monkeypatch, caplog):
    def fail(self, step, metrics):
        raise ConnectionError("the server\nis gone")

    monkeypatch.setattr(remembering, "send", fail)
    with caplog.at_level(logging.WARNING):
        run = fedsol.train(tiny, [remembering(tmp_path / "run")], tmp_path / "run")
    assert len(run.rows) == 2
    assert caplog.text.count("the run continues without it: ConnectionError: the server is gone") == 1
    assert remembering.closed == []


def test_a_tool_that_cannot_begin_stops_the_run_before_training(tiny, tmp_path, remembering, monkeypatch):
    def fail(self, experiment, identity, rounds):
        raise ValueError("not logged in")

    monkeypatch.setattr(remembering, "open", fail)
    with pytest.raises(RunError, match="tensorboard: tracking could not start: ValueError: not logged in"):
        fedsol.train(tiny, [remembering(tmp_path / "run")], tmp_path / "run")


def test_a_damaged_file_of_ids_is_named(tiny, tmp_path, remembering):
    fedsol.train(tiny, out=tmp_path)
    (tmp_path / "trackers.json").write_text("[")
    with pytest.raises(RunError, match=r"trackers\.json: cannot be read"):
        fedsol.train(tiny, [remembering(tmp_path)], tmp_path, resume=True)


@pytest.mark.parametrize("name", trackers.TRACKERS)
def test_a_missing_package_is_one_message_that_says_what_to_install(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedsol.trackers.find_spec", lambda _: None)
    done = CliRunner().invoke(app, ["run", "--track", name, "--out", "here"])
    assert done.exit_code == 2
    assert f"pip install 'fedsol[{name}]'" in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert not Path("here").exists()
    with pytest.raises(InputError, match="not installed"):
        trackers.make_tracker(name, "here")


def test_an_unknown_tracker_is_one_message(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["run", "--track", "tensorbord", "--out", "here"])
    assert done.exit_code == 2
    assert "--track: unknown value 'tensorbord'; did you mean 'tensorboard'?" in done.output


def test_the_adapters_import_their_packages_only_when_used():
    code = (
        "import sys\nfrom fedsol.cli.run import run\n"
        "from fedsol.trackers import make_tracker, TRACKERS\n"
        "assert not {'wandb', 'mlflow', 'tensorboard'} & set(sys.modules), sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# With the real packages, which warn about their own dependencies: that is not ours to mend.
real = pytest.mark.filterwarnings("ignore")


def track(name: str, experiment: fedsol.Experiment, out: Path) -> fedsol.Run:
    """A run that is tracked from the start, loses its last round as by a kill, and goes on."""
    fedsol.train(experiment, [trackers.make_tracker(name, out)], out)
    before = (out / "trackers.json").read_text()
    lines = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    (out / "metrics.jsonl").write_text("".join(lines[:-1]))
    run = fedsol.train(experiment, [trackers.make_tracker(name, out)], out, resume=True)
    assert (out / "trackers.json").read_text() == before
    return run


@real
def test_tensorboard(tiny, tmp_path):
    need("tensorboard")
    run = track("tensorboard", tiny, tmp_path / "run")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) >= SCALARS | {"class_accuracy/0", "class_accuracy/9"}
    for key in ("test_accuracy", "train_loss"):
        found = [(event.step, event.value) for event in events.Scalars(key)]
        assert found == [(row["round"], pytest.approx(row[key])) for row in run.rows]


@real
def test_wandb_offline(tiny, tmp_path, monkeypatch):
    need("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    run = track("wandb", tiny, tmp_path / "run")
    identity = json.loads((tmp_path / "run" / "trackers.json").read_text())["wandb"]
    files = sorted((tmp_path / "run" / "wandb").glob(f"offline-run-*-{identity}/run-{identity}*.wandb"))
    history = {step: row for file in files for step, row in offline_history(file).items()}
    assert sorted(history) == [1, 2]
    for row in run.rows:
        found = history[row["round"]]
        assert found.keys() >= SCALARS
        assert found["test_accuracy"] == pytest.approx(row["test_accuracy"])
        assert found["class_accuracy/3"] == pytest.approx(row["class_accuracy"][3])


def offline_history(file: Path) -> dict[int, dict]:
    """What `wandb sync` would send: the rows of history by step. The file is a LevelDB log of protocol buffers."""
    from wandb.proto import wandb_internal_pb2 as proto

    content, place, block, parts, found = file.read_bytes(), 7, 32768, b"", {}
    while place + 7 <= len(content):
        if block - place % block < 7:
            place += block - place % block
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = proto.Record()
            record.ParseFromString(parts)
            parts = b""
            if record.WhichOneof("record_type") == "history":
                items = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
                values = {key: json.loads(text) for key, text in items.items()}
                found[int(record.history.step.num or values["_step"])] = values
    return found


@real
def test_mlflow_file_store(tiny, tmp_path, monkeypatch):
    need("mlflow")
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run = track("mlflow", tiny, tmp_path / "run")
    identity = json.loads((tmp_path / "run" / "trackers.json").read_text())["mlflow"]
    (folder,) = (tmp_path / "mlruns").glob(f"*/{identity}")
    for key in ("test_accuracy", "train_loss", "class_accuracy/3"):
        lines = [line.split() for line in (folder / "metrics" / key).read_text().splitlines()]
        name, _, index = key.partition("/")
        expected = [row[name][int(index)] if index else row[name] for row in run.rows]
        assert [(int(step), float(value)) for _, value, step in lines] == list(enumerate(expected, start=1))
    assert (folder / "params" / "algorithm.name").read_text() == "fedavg"
    assert "status: 3" in (folder / "meta.yaml").read_text()  # FINISHED


@real
def test_the_command_tracks_with_several_at_once(tmp_path, monkeypatch):
    for name in ("tensorboard", "mlflow"):
        need(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    small = ["engine.kind=local", "rounds=1", "data.partition.clients=8", "client.epochs=1"]
    sets = [part for setting in small for part in ("--set", setting)]
    done = CliRunner().invoke(app, ["run", *sets, "--out", "here", "--track", "tensorboard, mlflow,tensorboard"])
    assert done.exit_code == 0, done.output
    assert set(json.loads(Path("here/trackers.json").read_text())) == {"tensorboard", "mlflow"}
    assert len(list(Path("here/tensorboard").iterdir())) == 1
