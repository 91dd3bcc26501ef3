"""Flower's simulation on Ray gives bitwise the same result as the in-process engine."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is an optional dependency: pip install 'fedsol[flower]'")

import fedsol
from tests.support.cases import CASES, experiment
from tests.support.deployment import free_port, listens
from tests.support.runs import rows_without_seconds
from tests.support.tensors import same_tensors

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Flower's simulation runs on Ray")

REPOSITORY = Path(__file__).parents[2]
PATIENT = ["--set", "engine.patience=600"]
"""A busy machine may take minutes to start the nodes."""

QUICK = ["scaffold"]
"""A method with a state, which `make test` simulates; `make test-all` simulates all."""


def simulate(settings, folder, *options):
    """A run in a process of its own, as a user would start it."""
    (folder / "experiment.toml").write_text(settings.to_toml())
    command = [sys.executable, "-m", "fedsol", "run", "experiment.toml", "--out", "run", *PATIENT, *options]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def first_of(name):
    return next(case for case in CASES if case.name == name)


def cases():
    quick = [first_of(name) for name in QUICK]
    return [pytest.param(case, marks=[] if case in quick else [pytest.mark.full], id=case.id) for case in CASES]


@pytest.mark.parametrize("case", cases())
def test_the_simulation_is_bitwise_the_in_process_engine(case, tmp_path):
    settings = experiment(case.table, data__partition__held_out=0.2)
    done = simulate(settings, tmp_path, "--set", "engine.kind=flower")
    assert done.returncode == 0, done.stderr
    local, simulated = fedsol.train(settings), fedsol.Run.load(tmp_path / "run")
    assert same_tensors(simulated.weights, local.weights)
    assert rows_without_seconds(simulated) == rows_without_seconds(local)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["rounds"] == 2


@pytest.mark.full
def test_a_simulation_joins_a_cluster_that_is_there(tmp_path):
    settings, port = experiment({"name": "fedsol"}), free_port()
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    start = [Path(sys.executable).with_name("ray"), "start", "--head", "--block", f"--port={port}", "--num-cpus=2"]
    start += ["--include-dashboard=false"]
    cluster = subprocess.Popen(
        start, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while not listens(port):
            assert cluster.poll() is None, "the cluster did not start"
            time.sleep(0.2)
        done = simulate(settings, tmp_path, "--set", "engine.kind=flower", "--set", f"engine.address=127.0.0.1:{port}")
        assert done.returncode == 0, done.stderr
        assert cluster.poll() is None, "a simulation leaves the cluster that it joined"
    finally:
        os.killpg(cluster.pid, signal.SIGTERM)
        cluster.wait()
    assert same_tensors(fedsol.Run.load(tmp_path / "run").weights, fedsol.train(settings).weights)


def test_a_cluster_that_is_not_there_is_one_clear_message(tmp_path):
    address = ["--set", "engine.kind=flower", "--set", "engine.address=127.0.0.1:1"]
    done = simulate(experiment({"name": "fedavg"}), tmp_path, *address)
    assert done.returncode == 2
    assert done.stderr.strip().startswith("error: engine.address: no Ray cluster answers at '127.0.0.1:1'")
    assert "Traceback" not in done.stderr


def test_without_an_address_a_cluster_is_started_and_none_searched_for():
    """Ray on its own would join the cluster that was last on this machine, or wait minutes for one that is gone."""
    from fedsol.config.tables import EngineSettings
    from fedsol.engines.flower.simulation import backend

    given = {"logging_level": "ERROR", "log_to_driver": False}
    assert backend(EngineSettings())["init_args"] == {**given, "address": "local"}
    assert backend(EngineSettings(workers=3))["init_args"] == {**given, "address": "local", "num_cpus": 3}
    assert backend(EngineSettings(workers=3, address="auto"))["init_args"] == {**given, "address": "auto"}


@pytest.mark.full
def test_a_finished_simulation_can_be_resumed(tmp_path):
    settings = experiment({"name": "fedavg"}, rounds=1)
    assert simulate(settings, tmp_path, "--set", "engine.kind=flower").returncode == 0
    more = simulate(settings, tmp_path, "--resume", "--set", "engine.kind=flower")
    assert more.returncode == 0, more.stderr


def test_a_simulation_that_fails_says_why(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("Flower gives up") from MemoryError("no memory for 4 nodes")

    monkeypatch.setattr("fedsol.engines.flower.simulation.run_simulation", fail)
    with pytest.raises(fedsol.RunError, match=r"Flower's simulation failed: no memory for 4 nodes"):
        fedsol.train(experiment({"name": "fedavg"}, engine__kind="flower"))
