"""Every engine gives bitwise the same result as the in-process one, whatever its workers, and whatever dies."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from multiprocessing.connection import wait
from pathlib import Path

import pytest

import fedsol
from fedsol import InputError, RunError
from fedsol.engines import make_engine, workers
from fedsol.engines.base import LocalEngine
from fedsol.engines.workers import WorkersEngine
from fedsol.federation.federation import Federation, build_federation
from fedsol.federation.tasks import EvaluateTest
from tests.support.cases import experiment, loop_cases
from tests.support.runs import StopAfter, assert_same_run, trained

REPOSITORY = Path(__file__).parents[1]


@loop_cases
def test_workers_are_bitwise_the_in_process_engine(case):
    local = trained(experiment(case.table))
    assert_same_run(fedsol.train(experiment(case.table, engine__kind="workers", engine__workers=2)), local)


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_the_number_of_workers_does_not_matter(workers):
    table = {"name": "scaffold"}
    local = trained(experiment(table, rounds=3))
    assert_same_run(fedsol.train(experiment(table, rounds=3, engine__kind="workers", engine__workers=workers)), local)


@pytest.mark.parametrize("model", ["small", "tests.support.user_code:with_batch_norm"])
def test_models_with_convolutions_and_with_running_statistics(model):
    changes = {"model__name": model, "model__options": {}}
    local = trained(experiment({"name": "fedsol"}, **changes))
    found = fedsol.train(experiment({"name": "fedsol"}, engine__kind="workers", engine__workers=2, **changes))
    assert_same_run(found, local)


@pytest.mark.parametrize("evaluate_batch", [1, 7, 50, 1000])
def test_evaluation_does_not_depend_on_how_the_test_set_is_divided(evaluate_batch):
    changes = {"rounds": 1, "server__evaluate_batch": evaluate_batch}
    local = trained(experiment({"name": "fedavg"}, **changes))
    assert_same_run(fedsol.train(experiment({"name": "fedavg"}, engine__kind="workers", **changes)), local)


def test_a_run_may_go_on_with_another_engine(tmp_path):
    table = {"name": "scaffold"}
    whole = trained(experiment(table, rounds=4))
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(experiment(table, rounds=4), [StopAfter(1)], tmp_path)
    with_workers = experiment(table, rounds=4, engine__kind="workers", engine__workers=2)
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(with_workers, [StopAfter(3)], tmp_path, resume=True)
    assert_same_run(fedsol.train(experiment(table, rounds=4), out=tmp_path, resume=True), whole)


def test_without_flower_its_engine_says_what_to_install(monkeypatch):
    monkeypatch.setattr("fedsol.engines.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'fedsol\[flower\]'"):
        fedsol.train(experiment({"name": "fedavg"}, engine__kind="flower"))


def dies(monkeypatch, when, by=signal.SIGKILL):
    """Makes a worker kill itself, as the system does when memory runs out, while `when(job)` is true."""
    parent, original = os.getpid(), Federation.train

    def train(self, job):
        if os.getpid() != parent and when(job):
            os.kill(os.getpid(), by)
        return original(self, job)

    monkeypatch.setattr(Federation, "train", train)


def first_time(folder):
    """Returns a function that is true once for every job, whatever process asks."""

    def asked(job):
        try:
            (folder / f"{job.round}-{job.client}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    return asked


def test_a_worker_that_dies_is_replaced_and_its_client_trained_again(monkeypatch, tmp_path):
    local = trained(experiment({"name": "scaffold"}))
    dies(monkeypatch, first_time(tmp_path))
    found = fedsol.train(experiment({"name": "scaffold"}, engine__kind="workers", engine__workers=2))
    assert_same_run(found, local)
    assert len(list(tmp_path.iterdir())) == 6  # every one of the jobs killed its first worker


def test_a_job_that_kills_every_worker_stops_the_run_with_a_message(monkeypatch):
    dies(monkeypatch, lambda job: True)
    with pytest.raises(RunError, match=r"3 worker processes failed on the same task .* died with exit code -9"):
        fedsol.train(experiment({"name": "fedavg"}, engine__kind="workers", engine__workers=2))


class Clock:
    """Instead of waiting for a silent worker: once, when a child of this process is stopped, an hour passes."""

    def __init__(self, monkeypatch):
        self.late = 0.0
        monkeypatch.setattr(workers, "time", self)
        monkeypatch.setattr(workers, "wait", self.wait)

    def monotonic(self):
        return time.monotonic() + self.late

    def wait(self, connections, seconds):
        how = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        if not self.late and any(os.waitid(os.P_PID, child.pid, how) for child in multiprocessing.active_children()):
            self.late = 3600.0
        return wait(connections, min(seconds, 0.05))


def test_a_worker_that_is_stopped_is_replaced_and_its_client_trained_again(monkeypatch, tmp_path, caplog):
    settings = experiment({"name": "scaffold"}, rounds=1)
    local = trained(settings)
    once = first_time(tmp_path)
    smallest = min(local.rows[0]["client_ids"])
    dies(monkeypatch, lambda job: job.client == smallest and once(job), by=signal.SIGSTOP)
    Clock(monkeypatch)
    stopped = settings.override({"engine.kind": "workers", "engine.workers": 2, "engine.timeout": 1800.0})
    assert_same_run(fedsol.train(stopped), local)
    assert "said nothing for 1800 seconds (engine.timeout)" in caplog.text


def test_a_worker_that_stops_before_it_has_read_its_weights_is_replaced(monkeypatch, caplog):
    Clock(monkeypatch)
    wide = {"model.options": {"hidden": 2048}, "engine.kind": "workers", "engine.timeout": 1800.0}
    federation = build_federation(experiment({"name": "fedavg"}).override(wide))
    server = federation.initial_server()
    with WorkersEngine(federation, 1) as engine:
        os.kill(engine._workers[0].process.pid, signal.SIGSTOP)
        ((task, tally),) = engine.run([EvaluateTest(server.weights, 0, 50)])
    assert tally == task.answer(federation)
    assert "said nothing for 1800 seconds" in caplog.text


def test_a_job_that_silences_every_worker_stops_the_run_with_a_message(monkeypatch):
    dies(monkeypatch, lambda job: True, by=signal.SIGSTOP)
    settings = {"engine__kind": "workers", "engine__workers": 2, "engine__timeout": 0.1}
    with pytest.raises(RunError, match=r"said nothing for 0.1 seconds \(engine.timeout\): .* raise engine.timeout"):
        fedsol.train(experiment({"name": "fedavg"}, **settings))


def test_an_error_in_a_worker_is_shown_as_it_was(monkeypatch):
    def fails(self, job):
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(Federation, "train", fails)
    place = rf"ZeroDivisionError: on purpose \({re.escape(__file__)}, line \d+, in fails\)"
    with pytest.raises(InputError, match=place):
        fedsol.train(experiment({"name": "fedavg"}, engine__kind="workers", engine__workers=2))


def test_no_process_is_left_behind():
    with make_engine(build_federation(experiment({"name": "fedavg"}, engine__kind="workers"))) as engine:
        if isinstance(engine, LocalEngine):
            pytest.skip("this machine has a single core")
        processes = [worker.process for worker in engine._workers]
        assert all(process.is_alive() for process in processes)
    assert not any(process.is_alive() for process in processes)


def test_no_more_workers_than_clients_in_a_round():
    one = experiment({"name": "fedavg"}, server__fraction=0.25, engine__kind="workers", engine__workers=8)
    assert isinstance(make_engine(build_federation(one)), LocalEngine)
    three = one.override({"server.fraction": 0.75})
    with make_engine(build_federation(three)) as engine:
        assert isinstance(engine, WorkersEngine)
        assert len(engine._workers) == 3


def test_spawned_workers_give_the_same_result(monkeypatch):
    """As on systems where forking is not safe."""
    import torch.multiprocessing

    from fedsol.engines import workers

    monkeypatch.setattr(workers, "_context", lambda federation: torch.multiprocessing.get_context("spawn"))
    local = trained(experiment({"name": "fedsol"}))
    assert_same_run(fedsol.train(experiment({"name": "fedsol"}, engine__kind="workers", engine__workers=2)), local)


REDUCED_PRECISION = """
import torch, fedsol
from dataclasses import replace
from fedsol.algorithms import make_algorithm
from fedsol.analysis.cost import random_batch
from fedsol.core.messages import Job
from fedsol.federation.federation import build_federation
from tests.support.tensors import same_tensors
from tests.support.cases import experiment
table = {"name": "fedsol"}
full = fedsol.train(experiment(table))
local = fedsol.train(experiment(table, engine__precision="bfloat16"))
workers = fedsol.train(experiment(table, engine__precision="bfloat16", engine__kind="workers", engine__workers=2))
assert not same_tensors(local.weights, full.weights)
assert all(bool(torch.isfinite(t).all()) and t.dtype == torch.float32 for t in local.weights.values())
assert same_tensors(workers.weights, local.weights)

federation = build_federation(experiment({"name": "fedavg"}, engine__precision="bfloat16"))
weights = federation.initial_weights()
task, moved = federation.task_for(weights), {name: 1.01 * tensor for name, tensor in weights.items()}
batch = random_batch(federation)
plain, _ = federation.algorithm.gradient(task, moved, batch, {})
pulled, _ = make_algorithm({"name": "fedprox"}).gradient(task, moved, batch, {})
assert same_tensors(pulled, {name: plain[name] + (moved[name] - weights[name]) for name in plain})
for name in ("scaffold", "feddyn", "fedsmoo", "fedcm"):
    one = replace(federation, algorithm=make_algorithm({"name": name}))
    update = one.train(Job(0, 1, weights, one.algorithm.broadcast(one.initial_server()), one.initial_state()))
    sent = (update.weights, update.state, update.payload)
    assert all(t.dtype in (torch.float32, torch.float64) for part in sent for t in part.values())
"""


def test_reduced_precision_is_another_result_and_the_same_on_every_engine():
    """What is added to a gradient, kept or sent stays in float32.

    In a process of its own, kept from matrix units that a virtual machine may announce but not have."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", REDUCED_PRECISION], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
