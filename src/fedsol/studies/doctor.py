"""What this machine is and does: devices, versions, and which precision pays, each tried in a process of its own.

A processor may announce instructions that it does not have (in virtual machines); torch then dies of them. So does only
the child here. `python -m fedsol.studies.doctor DEVICE PRECISION REPETITIONS` is that child.
"""

import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from fedsol.config.experiment import Experiment
from fedsol.core.memory import machine_memory
from fedsol.core.messages import Job, Update
from fedsol.core.randomness import one_torch_thread
from fedsol.core.weights import equal
from fedsol.data.types import Dataset, Split
from fedsol.federation.federation import Federation, build_federation

METHODS = ("fedavg", "fedsol")
PRECISIONS = {"cpu": ("float32", "bfloat16"), "cuda": ("float32", "bfloat16", "float16"), "mps": ("float32", "float16")}
PACKAGES = ("fedsol", "torch", "numpy", "safetensors")
REPETITIONS = 5
PAYS = 1.1
"""A precision must be this many times as fast to be worth other bits."""
WITHOUT_MATRIX_UNITS = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
"""What keeps torch from the matrix units (AMX) of a processor."""


@dataclass(frozen=True)
class Trial:
    """Local steps of the paper's CNN on a device, in a precision."""

    device: str
    precision: str
    milliseconds: dict[str, float] = field(default_factory=dict)
    """Of a step, by method: the median of some trainings, in processor time on a CPU; empty if it failed."""
    is_deterministic: bool | None = None
    """Whether training twice gave the same bits."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables without which it failed."""
    failure: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """What an owner of a machine is asked to paste into an issue."""

    machine: dict[str, Any]
    trials: tuple[Trial, ...]

    @property
    def advice(self) -> list[str]:
        """Say for each device which precision pays."""
        return [_advice([one for one in self.trials if one.device == device]) for device in _devices(self.trials)]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**self.machine, "trials": [asdict(trial) for trial in self.trials], "advice": self.advice}


def diagnose() -> Diagnosis:
    """Describe this machine and try every precision of every device."""
    devices = [*machine_devices()]
    trials = (try_out(device, precision) for device in devices for precision in PRECISIONS[device.split(":")[0]])
    return Diagnosis(describe_machine(), tuple(trials))


def describe_machine() -> dict[str, Any]:
    """Return cores, memory, devices and versions."""
    memory = machine_memory()
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": None if memory is None else round(memory / 2**30, 1),
        "devices": machine_devices(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in PACKAGES},
    }


def machine_devices() -> dict[str, str]:
    """Return the devices that `engine.device` may name, with what they are."""
    found = {"cpu": _processor()}
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        found[f"cuda:{number}"] = f"{properties.name}, {properties.total_memory / 2**30:.1f} GiB"
    return {**found, "mps": "Apple GPU"} if torch.backends.mps.is_available() else found


def try_out(device: str, precision: str) -> Trial:
    """Try a precision in a child process; if its instructions are missing, once more without the matrix units."""
    trial = _in_child(device, precision, {})
    if trial.failure and device == "cpu" and precision != "float32":
        again = _in_child(device, precision, WITHOUT_MATRIX_UNITS)
        return trial if again.failure else again
    return trial


def _in_child(device: str, precision: str, variables: Mapping[str, str]) -> Trial:
    command = [sys.executable, "-m", __name__, device, precision, str(REPETITIONS)]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    if done.returncode == 0:
        return Trial(device, precision, **json.loads(done.stdout.splitlines()[-1]), environment=dict(variables))
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        missing = ": the processor lacks instructions that it announces" if name == "SIGILL" else ""
        return Trial(device, precision, failure=f"killed by {name}{missing}")
    return Trial(device, precision, failure=(done.stderr.strip().splitlines() or ["no message"])[-1])


def measure(device: str, precision: str, repetitions: int) -> dict[str, Any]:
    """Train one client by each method, several times in turns; return a step's time, and whether bits are repeated."""
    federations = {method: _federation(method, device, precision) for method in METHODS}
    seconds: dict[str, list[float]] = {method: [] for method in METHODS}
    updates: dict[str, list[Update]] = {method: [] for method in METHODS}
    clock = time.process_time if device == "cpu" else time.perf_counter
    with one_torch_thread():
        for _ in range(1 + repetitions):  # the first warms up
            for method, federation in federations.items():
                update, taken = _timed(federation, clock)
                seconds[method].append(taken / update.steps)
                updates[method].append(update)
    pairs = [(found[0].weights, other.weights) for found in updates.values() for other in found[1:]]
    return {
        "milliseconds": {method: 1e3 * statistics.median(found[1:]) for method, found in seconds.items()},
        "is_deterministic": all(equal(one, other) for one, other in pairs),
    }


def _timed(federation: Federation, clock: Callable[[], float]) -> tuple[Update, float]:
    """Train a client; its update is on the CPU, so a GPU has finished."""
    start = clock()
    return federation.train(Job(0, 1, federation.initial_weights())), clock() - start


def _federation(method: str, device: str, precision: str) -> Federation:
    """Return a federation of one client with 200 random images."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (200, 3, 32, 32), dtype=torch.uint8, generator=generator)
    split = Split(images, torch.arange(200) % 10)
    data = Dataset("random", split, split, 10, (0.5,) * 3, (0.25,) * 3)
    experiment = Experiment(
        data={"partition": {"kind": "iid", "clients": 1}},
        model={"name": "cnn"},
        algorithm={"name": method},
        client={"epochs": 2},
        engine={"kind": "local", "device": device, "precision": precision},
    )
    return build_federation(experiment, data)


def _devices(trials: Sequence[Trial]) -> list[str]:
    return list(dict.fromkeys(trial.device for trial in trials))


def _advice(trials: Sequence[Trial]) -> str:
    """Return one sentence about a device, whose first trial is float32."""
    full = trials[0]
    if full.failure:
        return f"{full.device}: does not work ({full.failure})"
    working = [trial for trial in trials[1:] if not trial.failure]
    best = max(working, key=lambda trial: _speed_up(full, trial), default=full)
    if _speed_up(full, best) < PAYS:
        return f"{full.device}: stay with engine.precision = 'float32'; no other is {PAYS:g} times as fast"
    ratios = ", ".join(f"{method} {full.milliseconds[method] / best.milliseconds[method]:.1f} x" for method in METHODS)
    needs = "".join(f", with {name}={value} in the environment" for name, value in best.environment.items())
    return f"{best.device}: engine.precision = '{best.precision}' is faster ({ratios}){needs}; results are others"


def _speed_up(full: Trial, trial: Trial) -> float:
    """Return how many times as fast a step is, of the method that gains least."""
    return min(full.milliseconds[method] / trial.milliseconds[method] for method in METHODS)


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
