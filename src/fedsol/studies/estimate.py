"""Estimate what a federation costs before it runs: bytes (exact), memory (counted), time (from three real rounds)."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from fedsol.algorithms.base import Algorithm
from fedsol.core.memory import peak_bytes
from fedsol.core.messages import Job, ServerState, Update
from fedsol.core.randomness import one_torch_thread
from fedsol.core.weights import pick, size_in_bytes
from fedsol.data.types import Split
from fedsol.errors import InputError
from fedsol.federation.federation import Federation, assemble
from fedsol.federation.sampling import sample_clients
from fedsol.runs.checkpoints import CHECKPOINTS
from fedsol.runs.client_states import MEMORY_BUDGET
from fedsol.studies.plan import Plan
from fedsol.training.aggregation import apply_server_optimizer
from fedsol.training.loop import Callback, RoundResult, train_federation
from fedsol.training.updates import expected_answers

TRIAL_STEPS = 4
"""Local steps of a client in a trial round, at most."""
TRIAL_BATCHES = 8
"""Batches per worker in the trial's evaluation, at most."""
SLOWEST_OF = 20
"""Rounds that are sampled to find their slowest client."""
MONTH = 30 * 86400.0


@dataclass(frozen=True)
class Network:
    """A deployment. Bandwidths are in bytes per second; None means not limited."""

    up: float | None = None
    down: float | None = None
    server_up: float | None = None
    server_down: float | None = None
    device_speed: float | None = None
    """Speed of a client's device as a multiple of one worker of this machine (default 1)."""
    interval: float | None = None
    """Seconds between the starts of two rounds, unless a round takes longer."""

    def __post_init__(self) -> None:
        if self.device_speed is not None and not 0 < self.device_speed < float("inf"):
            raise InputError(f"--device-speed: must be greater than 0 (got {self.device_speed})")

    @property
    def is_stated(self) -> bool:
        """Whether any part of a deployment is stated."""
        return any(value is not None for value in vars(self).values())


class ClientBytes(NamedTuple):
    """Bytes of tensors for one client in one round, as metrics.jsonl counts them: without framing."""

    down: int
    """Weights and broadcast."""
    up: int
    """Weights and payload."""
    state: int
    """The client's own state. A simulation stores it; in a deployment it stays on the client."""
    test: int
    """Weights alone, for a client that tests the global model."""


def bytes_per_client(federation: Federation, algorithm: Algorithm | None = None) -> ClientBytes:
    """Return what a client receives, sends and stores (default: with the federation's own algorithm)."""
    if algorithm is not None:
        federation = replace(federation, algorithm=algorithm)
    server = _initial_server(federation)
    payload, state = expected_answers(federation, server, federation.initial_state())
    size = size_in_bytes(server.weights)
    broadcast = federation.algorithm.broadcast(server)
    return ClientBytes(size + size_in_bytes(broadcast), size + size_in_bytes(payload), size_in_bytes(state), size)


def _initial_server(federation: Federation) -> ServerState:
    weights, names = federation.initial_weights(), federation.model.names
    return ServerState(weights, names, federation.clients, federation.algorithm.init_server(pick(weights, names)))


def count_bytes(plan: Plan, traffic: ClientBytes) -> dict[str, int]:
    """Count a job for every sampled client, an answer unless it drops out, and the weights sent to testers."""
    down = plan.per_round * traffic.down
    up = round(plan.per_round * traffic.up * (1 - plan.experiment.faults.dropout))
    tests = plan.evaluations * plan.testers * traffic.test
    per_client = {f"client_{name}": count for name, count in traffic._asdict().items()}
    totals = {"total_down": plan.rounds * down + tests, "total_up": plan.rounds * up}
    return {**per_client, "round_down": down, "round_up": up, **totals}


def count_memory(plan: Plan, trial: Federation, process: int) -> dict[str, int]:
    """Count the bytes of memory and disk of a simulation; `process` is the interpreter with its libraries."""
    traffic, server = bytes_per_client(trial), _initial_server(trial)
    optimizer = apply_server_optimizer(trial.experiment.server, server, server).optimizer
    model = size_in_bytes(server.weights)
    checkpoint = model + size_in_bytes(server.state) + size_in_bytes(optimizer)
    touched = plan.clients * (1 - (1 - plan.per_round / plan.clients) ** plan.rounds)  # expected distinct clients
    superseded = min(touched, plan.per_round * plan.experiment.server.checkpoint_every)
    job = Job(0, 1, server.weights, trial.algorithm.broadcast(server), trial.initial_state())
    with one_torch_thread():
        training = peak_bytes(lambda: trial.train(job))
    parts = {
        "process": process,
        "data": plan.data.bytes,
        "updates": plan.per_round * traffic.up,  # held until they are averaged
        "server_state": 2 * checkpoint + traffic.down,  # before and after a round, and the message
        "states_in_memory": min(MEMORY_BUDGET, round(touched * traffic.state)),
    }
    return {
        "model": model,
        "server": sum(parts.values()),
        **parts,
        "states_on_disk": round((touched + superseded) * traffic.state),
        "checkpoints": CHECKPOINTS * checkpoint,
        "worker": traffic.down + traffic.state + max(training, 2 * traffic.down, 2 * (traffic.up + traffic.state)),
        "training": training,
    }


def memory_of_this_process() -> int:
    """Return the peak memory of this process so far, in bytes."""
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@dataclass(frozen=True)
class Speed:
    """Seconds on this machine, from a trial."""

    sample: float
    """One worker trains on one sample."""
    update: float
    """The server checks and averages one update."""
    test: float
    """All workers together evaluate one test sample."""


class _Clock(Callback):
    """Note when a round starts, when its last client is finished, and when it is over."""

    def __init__(self) -> None:
        self.rounds: list[list[float]] = []

    def round_started(self, round_number: int, clients: Sequence[int]) -> None:
        self.rounds.append([time.perf_counter()] * 3)

    def client_finished(self, update: Update) -> None:
        self.rounds[-1][1] = time.perf_counter()

    def round_finished(self, result: RoundResult) -> None:
        self.rounds[-1][2] = time.perf_counter()


def make_trial(plan: Plan) -> Federation:
    """Return the plan's federation with one typical client per worker, of few steps, and a part of the test set."""
    settings, mean = plan.experiment, round(plan.sizes.mean())
    size = max(1, min(mean, TRIAL_STEPS * settings.client.batch_size))
    steps = -(-size // settings.client.batch_size)
    changes = {
        "rounds": 3,
        "client.epochs": min(settings.client.epochs, max(1, TRIAL_STEPS // steps)),
        "data.partition.held_out": 0.0,
        "server.fraction": 1.0,
        "server.min_updates": 1,
        "server.evaluate_every": 3,
        "server.evaluate_last": 1,
        "engine.kind": "local" if plan.workers == 1 else "workers",
        "engine.workers": plan.workers,
    }
    experiment = settings.override(changes)
    experiment = experiment.model_copy(update={"faults": type(settings.faults)()})
    tested = min(plan.data.test_size, TRIAL_BATCHES * plan.workers * settings.server.evaluate_batch)
    data = plan.data.dataset
    data = replace(data, train=_repeat(data.train, size), test=_repeat(data.test, tested))
    return assemble(experiment, data, [torch.arange(size)] * plan.workers)


def _repeat(split: Split, count: int) -> Split:
    """Return exactly `count` samples: the first ones, repeated if there are too few."""
    chosen = torch.arange(count) % len(split)
    return replace(split, inputs=split.inputs[chosen], labels=split.labels[chosen], clients=None)


def time_trial(trial: Federation) -> Speed:
    """Run three rounds: the first warms up, the second is timed without evaluation, the third with it."""
    clock = _Clock()
    train_federation(trial, [clock])
    _, (start, trained, end), (third_start, third_trained, third_end) = clock.rounds
    training = (trained - start + third_trained - third_start) / 2
    samples = len(trial.dataset.train) * trial.experiment.client.epochs
    evaluation = max(0.0, (third_end - third_trained) - (end - trained))
    return Speed(training / samples, (end - trained) / trial.clients, evaluation / len(trial.dataset.test))


def seconds_here(plan: Plan, speed: Speed) -> dict[str, float]:
    """Scale the trial to the whole run: workers take clients of average size in turns."""
    turns = -(-plan.per_round // plan.workers)
    training = turns * float(plan.sizes.mean()) * plan.experiment.client.epochs * speed.sample
    server = plan.per_round * speed.update
    evaluation = plan.data.test_size * speed.test
    total = plan.rounds * (training + server) + plan.evaluations * evaluation
    phases = {"training": training, "server": server, "evaluation": evaluation}
    return {**phases, "round": total / plan.rounds, "total": total}


def deploy(plan: Plan, network: Network, speed: Speed, traffic: ClientBytes) -> dict[str, float]:
    """Add up a round: all download, all train (the slowest decides), all upload, the server averages and evaluates."""
    seconds, share, inf = seconds_here(plan, speed), plan.per_round / plan.clients, float("inf")
    sampled = range(1, min(plan.rounds, SLOWEST_OF) + 1)
    slowest = np.mean([plan.sizes[sample_clients(plan.experiment, plan.clients, number)].max() for number in sampled])
    phases = {
        "download": max(
            traffic.down / (network.down or inf), plan.per_round * traffic.down / (network.server_up or inf)
        ),
        "training": float(slowest) * plan.experiment.client.epochs * speed.sample / (network.device_speed or 1.0),
        "upload": max(traffic.up / (network.up or inf), plan.per_round * traffic.up / (network.server_down or inf)),
        "server": seconds["server"] + plan.evaluations / plan.rounds * seconds["evaluation"],
    }
    busy = sum(phases.values())
    whole = max(busy, network.interval or 0.0)
    client_bytes = share * (traffic.down + traffic.up)
    return {
        **phases,
        "round": whole,
        "total": (plan.rounds - 1) * whole + busy,
        "client_rounds": plan.rounds * share,
        "client_bytes": plan.rounds * client_bytes,
        "client_bytes_per_month": MONTH / whole * client_bytes,
    }


def estimate(plans: Sequence[Plan], network: Network) -> list[dict[str, Any]]:
    """Estimate every plan: plain values in bytes and seconds, as `fedsol estimate --json` prints them."""
    trials = [make_trial(plan) for plan in plans]
    speeds = [time_trial(trial) for trial in trials]
    read = {id(plan.data): plan.data.bytes for plan in plans if plan.data.is_real}
    process = max(0, memory_of_this_process() - sum(read.values()))
    found = []
    for plan, trial, speed in zip(plans, trials, speeds, strict=True):
        traffic, memory = bytes_per_client(trial), count_memory(plan, trial, process)
        numbers = {name: getattr(plan, name) for name in ("label", "clients", "per_round", "rounds", "workers")}
        costs = {"bytes": count_bytes(plan, traffic), "seconds": seconds_here(plan, speed), "memory": memory}
        deployment = None
        if network.is_stated:
            server = memory["process"] + memory["server_state"] + memory["updates"]
            sizes = {"server_memory": server, "client_memory": memory["worker"], "client_disk": traffic.state}
            deployment = {**deploy(plan, network, speed, traffic), **sizes}
        found.append({**numbers, **costs, "deployment": deployment, "algorithm": plan.experiment.algorithm})
    return found


def show_bytes(count: float) -> str:
    """Return three figures and a binary unit."""
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while round(count) >= 1000 and len(units) > 1:
        count /= 1024
        del units[0]
    return f"{_three_figures(count)} {units[0]}"


def show_seconds(seconds: float) -> str:
    """Return three figures and a unit of time."""
    for limit, divisor, unit in ((1.0, 1e-3, "ms"), (120.0, 1, "s"), (7200.0, 60, "min"), (172800.0, 3600, "h")):
        if seconds < limit:
            return f"{_three_figures(seconds / divisor)} {unit}"
    return f"{_three_figures(seconds / 86400)} d"


def _three_figures(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"
