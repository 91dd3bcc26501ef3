"""A few real SIGKILLs at random instants; `make faults` does many."""

import json
import os
import random
import subprocess
import sys
from functools import partial

import pytest

import fedsol
from fedsol.privacy.accounting import Mechanism
from tests.support.cli import fedsol as command_line
from tests.support.kill_runs import ENGINES, METHODS, WEIGHTS_AT_HOME, experiment_for, trial
from tests.support.runs import assert_same_run, killed_at_flush

FEW = [method for method in METHODS if method not in WEIGHTS_AT_HOME[1:]]  # one of these stands for the others


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "method", [*FEW, *(pytest.param(method, marks=pytest.mark.full) for method in WEIGHTS_AT_HOME[1:])]
)
def test_a_killed_run_resumes_to_bitwise_the_same_end(method, engine, tmp_path):
    assert trial(method, engine, 2, tmp_path, random.Random(f"{method} {engine}"), span=0.8) == 2


LIMITED = """
import resource, sys, fedsol
experiment, out = fedsol.Experiment.load(sys.argv[1]), sys.argv[2]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    fedsol.train(experiment, out=out, resume=True)
except fedsol.RunError as error:
    print(error)
    sys.exit(1)
"""


@pytest.mark.parametrize("limit", [500, *(pytest.param(more, marks=pytest.mark.full) for more in (3_000, 20_000))])
def test_a_disk_that_takes_no_more_ends_the_run_with_its_last_checkpoint_intact(tiny, tmp_path, limit):
    """The system itself refuses to make a file longer than the limit: metrics, a description, or the weights."""
    experiment = tiny.override({"rounds": 5, "model.name": "mlp", "algorithm.name": "scaffold"})
    whole = fedsol.train(experiment)
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(experiment, [_StopAfterTwo()], out)
    (tmp_path / "e.toml").write_text(experiment.to_toml())
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "e.toml"), str(out), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 1, done.stderr
    assert "cannot be written" in done.stdout
    assert "File too large" in done.stdout
    assert_same_run(fedsol.train(experiment, out=out, resume=True), whole)


class _StopAfterTwo(fedsol.Callback):
    def round_finished(self, result):
        if result.round == 2:
            raise KeyboardInterrupt


def test_a_second_process_is_refused_with_the_owners_id(tiny, tmp_path):
    """Two real processes on one directory: another, and this one."""
    (tmp_path / "e.toml").write_text(tiny.override({"rounds": 100_000}).to_toml())
    arguments = ["run", str(tmp_path / "e.toml"), "--out", str(tmp_path / "run")]
    owner = subprocess.Popen([sys.executable, "-m", "fedsol", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        owner.stdout.readline()  # the first round is finished
        second = command_line(*arguments, "--resume")
        assert second.exit_code == 2
        assert f"in use by process {owner.pid}" in second.stderr
    finally:
        owner.kill()
        owner.communicate()


@pytest.mark.parametrize("checkpoint_every", [1, 2])
def test_a_kill_at_every_single_write_to_the_disk(tmp_path, checkpoint_every):
    """Every file, row and folder that a run writes is flushed: a kill at each flush in turn is one at every stage."""
    experiment = experiment_for("scaffold", "local").override(
        {"rounds": 3, "server.checkpoint_every": checkpoint_every, "server.fraction": 0.25}
    )
    whole = fedsol.train(experiment)
    number = left_over = 0
    while killed_at_flush(partial(fedsol.train, experiment, out=tmp_path / str(number := number + 1)), number):
        out = tmp_path / str(number)
        left_over += len(list(out.rglob(".*.tmp")))
        assert_same_run(fedsol.train(experiment, out=out, resume=(out / "experiment.toml").exists()), whole)
        assert not list(out.rglob(".*.tmp"))
    assert number > 25
    assert left_over > 10


def test_a_deployment_that_is_killed_near_the_end_of_its_budget_never_exceeds_it(tmp_path):
    """Every release is on the disk before it is made; resumed after any kill, the run ends where its budget does."""
    pytest.importorskip("flwr", reason="Flower is an optional dependency: pip install 'fedsol[flower]'")
    from tests.support.fake_grid import deployed

    budget = Mechanism(2, 8, 2.0).epsilon(4, 1e-5)
    private = {"privacy.noise_multiplier": 2.0, "privacy.epsilon": budget * 1.001, "server.fraction": 0.25}
    experiment = experiment_for("fedavg", "local").override({"rounds": 9, **private})
    number, finished = 16, set()
    while killed_at_flush(partial(deployed, experiment, tmp_path / str(number)), number):
        run, _ = deployed(experiment, tmp_path / str(number), resume=True)
        assert json.loads((run.path / "privacy.json").read_text()) == {"releases": 4}
        assert run.rows[-1]["epsilon"] <= budget
        assert [row["releases"] for row in run.rows] == sorted({row["releases"] for row in run.rows})
        finished.add(len(run.rows))
        number += 4
    assert number > 30
    assert min(finished) < max(finished) == 4  # a round that was repeated is paid for twice
