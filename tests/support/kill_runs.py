"""Kills runs at random instants and resumes them: `make faults`. Every one must end bitwise as if never killed.

python -m tests.support.kill_runs [KILLS]
"""

import fcntl
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

import fedsol
from fedsol import Experiment
from tests.support.tensors import same_tensors

METHODS: dict[str, dict[str, object]] = {
    "fedavg": {"name": "fedavg"},
    "fedsol": {"name": "fedsol"},
    "scaffold": {"name": "scaffold"},
    "fedper": {"name": "fedper"},
    "fedrep": {"name": "fedrep"},
    "fedbn": {"name": "fedbn"},
    "lg-fedavg": {"name": "lg-fedavg"},
    "adapters": {"name": "fedsol", "perturb": "all"},
}
WEIGHTS_AT_HOME = ("fedper", "fedrep", "fedbn", "lg-fedavg")
ENGINES = ("local", "workers")
ROUNDS = 25


def experiment_for(method: str, engine: str) -> Experiment:
    """A run of about a second, most of it spent in short rounds and checkpoints."""
    own_parts = {"held_out": 0.25} if method in WEIGHTS_AT_HOME else {}
    model = "tests.support.user_code:with_batch_norm" if method == "fedbn" else "mlp"
    return Experiment(
        rounds=ROUNDS,
        data={"partition": {"clients": 8, "alpha": 0.5, **own_parts}},
        model={"name": model, "lora": {"rank": 2} if method == "adapters" else {}},
        algorithm=METHODS[method],
        server={"fraction": 0.5, "checkpoint_every": 2},
        client={"epochs": 1},
        engine={"kind": engine, "workers": 2},
    )


def start(experiment: Experiment, out: Path) -> int:
    """The run in a process of its own; returns its id. It exits with 0 if it comes to its end."""
    process = os.fork()
    if process:
        return process
    try:
        fedsol.train(experiment, out=out, resume=(out / "experiment.toml").exists())
        os._exit(0)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


def killed(process: int, after: float) -> bool:
    """Kills the process after so many seconds, unless it has come to its end by then."""
    deadline = time.monotonic() + after
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            assert status == 0, "a run failed instead of going on"
            return False
        time.sleep(0.001)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return True


def wait_for_lock(out: Path) -> None:
    """Workers of a killed process hold its lock for the instant until they are killed too."""
    lock = out / "run.lock"
    while lock.exists():
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.01)


def finish(experiment: Experiment, out: Path) -> None:
    """Lets the run come to its end."""
    wait_for_lock(out)
    _, status = os.waitpid(start(experiment, out), 0)
    assert status == 0, f"{out} cannot be resumed"


def compare(found: fedsol.Run, whole: fedsol.Run, out: Path) -> None:
    """Weights, metrics (all but `seconds`) and what clients keep, of the killed run and the whole one."""
    strip = [[{k: v for k, v in row.items() if k != "seconds"} for row in run.rows] for run in (found, whole)]
    assert same_tensors(found.weights, whole.weights), f"{out}: other weights"
    assert strip[0] == strip[1], f"{out}: other metrics"
    for client, state in whole.client_states.items():
        assert same_tensors(found.own_state(client), state), f"{out}: client {client} keeps other weights"


def trial(method: str, engine: str, kills: int, folder: Path, rng: random.Random, span: float) -> int:
    """One run, killed so many times on its way (fewer if it ends before); returns how often it was."""
    experiment = experiment_for(method, engine)
    whole = fedsol.train(experiment)
    done, number = 0, 0
    while done < kills:
        number += 1
        out = folder / f"{method}-{engine}-{number}"
        while done < kills and killed(start(experiment, out), rng.uniform(0.01, span)):
            done += (out / "experiment.toml").exists()  # an earlier kill leaves nothing to go on with
            wait_for_lock(out)
        finish(experiment, out)
        compare(fedsol.Run.load(out), whole, out)
    return done


def main() -> None:
    torch.set_num_threads(1)  # processes are forked from this one
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    rng = random.Random(0)
    cells = [(method, engine) for method in METHODS for engine in ENGINES]
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        for method, engine in cells:
            start_time = time.monotonic()
            fedsol.train(experiment_for(method, engine), out=Path(folder) / f"timing-{method}-{engine}")
            span = 0.6 * (time.monotonic() - start_time)
            total += trial(method, engine, -(-kills // len(cells)), Path(folder), rng, span)
            print(f"{method} on {engine}: resumed to bitwise the same end; {total} kills so far", flush=True)
    print(f"{total} kills, every run ended bitwise as if never killed")


if __name__ == "__main__":
    main()
