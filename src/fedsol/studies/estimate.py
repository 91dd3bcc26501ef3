"""Estimate what a federation costs before it runs: bytes (exact), memory (counted), time (from three real rounds)."""

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from fedsol.algorithms import make_algorithm
from fedsol.core.logs import quiet
from fedsol.core.memory import peak_bytes, require_memory
from fedsol.core.messages import Job, Update
from fedsol.core.randomness import one_torch_thread
from fedsol.core.weights import size_in_bytes
from fedsol.data.types import Dataset, Split, tensors_of
from fedsol.federation.federation import Federation, assemble
from fedsol.federation.sampling import own_parts, sample_clients, sample_testers
from fedsol.runs.checkpoints import CHECKPOINTS
from fedsol.runs.client_states import MEMORY_BUDGET
from fedsol.studies.plan import Plan
from fedsol.training.aggregation import apply_server_optimizer
from fedsol.training.callbacks import Callback, RoundResult
from fedsol.training.folding import held_at_most, reason_to_hold
from fedsol.training.guard import limits_of
from fedsol.training.loop import train_federation
from fedsol.training.updates import expected_answers

TRIAL_STEPS = 4  # local steps of a client in a trial round, at most
TIMED_ROUNDS = 2  # the trial's rounds after the first, which warms up
TRIAL_BATCHES = 8  # batches per worker in the trial's evaluation, at most
SAMPLED_ROUNDS = 20  # rounds that are sampled to find their slowest client, at most
MONTH = 30 * 86400


@dataclass(frozen=True)
class Network:
    """A deployment. Bandwidths are in bytes per second; None means unlimited."""

    up: float | None = None
    down: float | None = None
    server_up: float | None = None
    server_down: float | None = None
    device_speed: float | None = None  # of a client's device, relative to a worker here (default 1)
    interval: float | None = None  # seconds between the starts of two rounds, unless a round takes longer


class ClientBytes(NamedTuple):
    """Bytes of tensors for one client in one round, as metrics.jsonl counts them: without framing."""

    down: int  # weights and broadcast
    up: int  # weights and payload
    state: int  # the client's own: a simulation stores it; in a deployment it stays on the client
    test: int  # weights alone, for a client that tests the global model


def bytes_per_client(federation: Federation) -> ClientBytes:
    """Return what a client receives, sends and stores."""
    server = federation.exchange.server(federation.initial_server())
    payload, state = expected_answers(federation, server, federation.initial_state())
    size = size_in_bytes(server.weights)
    broadcast = federation.algorithm.broadcast(server)
    return ClientBytes(size + size_in_bytes(broadcast), size + size_in_bytes(payload), size_in_bytes(state), size)


def count_bytes(plan: Plan, traffic: ClientBytes) -> dict[str, int]:
    """Count a job for every sampled client, an answer unless it drops out, and the weights sent to testers."""
    settings = plan.experiment
    testers = len(sample_testers(settings, plan.clients, 1)) * len(own_parts(settings))
    tests = plan.evaluations * testers * traffic.test
    down = plan.per_round * traffic.down
    up = round(plan.per_round * traffic.up * (1 - settings.faults.dropout))
    return {
        **{f"client_{name}": count for name, count in traffic._asdict().items()},
        "round_down": down,
        "round_up": up,
        "total_down": plan.rounds * down + tests,
        "total_up": plan.rounds * up,
    }


def reason_held(plan: Plan) -> str | None:
    """Return why a simulation holds all updates of a round, or None if it averages them as they arrive."""
    experiment = plan.experiment
    return reason_to_hold(experiment, make_algorithm(experiment.algorithm), limits_of(experiment, deployed=False))


def updates_held(plan: Plan) -> int:
    """Return how many updates of a round a simulation holds at once."""
    return plan.per_round if reason_held(plan) else held_at_most(plan.per_round, plan.workers)


def count_memory(plan: Plan, process: int) -> dict[str, int]:
    """Count the bytes of memory and disk of a simulation; `process` is the interpreter with its libraries."""
    trial = make_trial(plan, int(plan.sizes.max()))
    traffic, server = bytes_per_client(trial), trial.initial_server()
    optimizer = apply_server_optimizer(trial.experiment.server, server, server).optimizer
    model, frozen = size_in_bytes(server.weights), size_in_bytes(trial.model.frozen)
    checkpoint = model + size_in_bytes(server.state) + size_in_bytes(optimizer)
    touched = plan.clients * (1 - (1 - plan.per_round / plan.clients) ** plan.rounds)  # expected distinct clients
    keeps_best = plan.experiment.data.validation > 0
    superseded = min(touched, plan.per_round * plan.experiment.server.checkpoint_every)
    job = Job(0, 1, trial.exchange.sent(server.weights), trial.algorithm.broadcast(server), trial.initial_state())
    with one_torch_thread():
        training = peak_bytes(lambda: trial.train(job))
    parts = {
        "process": process,
        "data": data_bytes(plan.dataset),
        "frozen": frozen,
        "updates": updates_held(plan) * traffic.up,
        "server_state": (2 + keeps_best) * checkpoint + traffic.down,  # before and after a round, and the message
        "states_in_memory": min(MEMORY_BUDGET, round(touched * traffic.state)),
    }
    return {
        "model": model,
        "server": sum(parts.values()),
        **parts,
        "states_on_disk": round((touched + superseded) * traffic.state),
        "checkpoints": (CHECKPOINTS + keeps_best) * checkpoint,
        "worker": frozen
        + traffic.down
        + traffic.state
        + max(training, 2 * traffic.down, 2 * (traffic.up + traffic.state)),
        "training": training,
    }


def data_bytes(dataset: Dataset) -> int:
    """Return the memory of a dataset, as if it were real."""
    parts = (dataset.train, dataset.test)
    return sum(size_in_bytes(tensors_of(part.inputs)) + size_in_bytes({"labels": part.labels}) for part in parts)


class Speed(NamedTuple):
    """Seconds on this machine, from a trial."""

    sample: float  # one worker trains on one sample
    update: float  # the server checks and averages one update
    test: float  # all workers together evaluate one test sample
    spread: float  # of training: half the difference between the timed rounds, as a share of their mean


class _Clock(Callback):
    """Note when a round starts, when its last client is finished, and when it is over."""

    needs_updates = False

    def __init__(self) -> None:
        self.rounds: list[list[float]] = []

    def round_started(self, round_number: int, clients: Sequence[int]) -> None:
        self.rounds.append([time.perf_counter()] * 3)

    def client_finished(self, update: Update) -> None:
        self.rounds[-1][1] = time.perf_counter()

    def round_finished(self, result: RoundResult) -> None:
        self.rounds[-1][2] = time.perf_counter()


def make_trial(plan: Plan, samples: int | None = None) -> Federation:
    """Return a federation of one client (of `samples`, or of average size) per worker, few steps and few tests."""
    settings = plan.experiment
    batch = settings.client.batch_size
    size = max(1, min(samples or round(plan.sizes.mean()), TRIAL_STEPS * batch))
    changes = {
        "rounds": 3,
        "client.epochs": min(settings.client.epochs, max(1, TRIAL_STEPS // -(-size // batch))),
        "client.steps": settings.client.steps and min(settings.client.steps, TRIAL_STEPS),
        "data.name": "trial",  # its samples are at hand, even of private data
        "data.partition.held_out": 0.0,
        "data.validation": 0.0,
        "server.patience": None,
        "server.stop_at": None,
        "server.fraction": 1.0,
        "server.min_updates": 1,
        "server.evaluate_every": 3,
        "server.evaluate_last": 1,
        "engine.kind": "local" if plan.workers == 1 else "workers",
        "engine.workers": plan.workers,
        **({"privacy.epsilon": None, "privacy.noise_multiplier": 0.0} if settings.privacy.is_on else {}),
        **({"privacy.clipping": "server"} if settings.privacy.clipping == "client" else {}),
    }
    experiment = settings.override(changes).model_copy(update={"faults": type(settings.faults)()})
    examples = max(1, len(plan.dataset.train))
    sample = size_in_bytes(tensors_of(plan.dataset.train.inputs)) // examples
    require_memory(5 * size * sample, f"client.batch_size: a trial with {size:,} samples of {plan.dataset.name}")
    tested = min(len(plan.dataset.test), TRIAL_BATCHES * plan.workers * settings.server.evaluate_batch)
    data = replace(plan.dataset, train=_first(plan.dataset.train, size), test=_first(plan.dataset.test, tested))
    return assemble(experiment, data, [torch.arange(size)] * plan.workers)


def _first(split: Split, count: int) -> Split:
    """Return the first samples, repeated if there are too few."""
    return split.select(torch.arange(count) % len(split))


def time_trial(trial: Federation) -> Speed:
    """Run three rounds: the first warms up, the second is timed without evaluation, the third with it."""
    clock = _Clock()
    with quiet("fedsol.training"):  # what a trial spends, for one, is not what the run will
        train_federation(trial, [clock])
    (second, server), (third, server_and_test) = [(done - start, end - done) for start, done, end in clock.rounds[1:]]
    size = len(trial.dataset.train)
    samples = size * trial.epochs_of(size)
    test = max(0.0, server_and_test - server) / len(trial.dataset.test) if len(trial.dataset.test) else 0.0
    both = second + third
    return Speed(both / TIMED_ROUNDS / samples, server / trial.clients, test, abs(second - third) / both)


def seconds_here(plan: Plan, speed: Speed) -> dict[str, float]:
    """Scale the trial to the whole run: workers take clients of average size in turns."""
    turns = -(-plan.per_round // plan.workers)
    training = turns * float(plan.samples_per_round.mean()) * speed.sample
    server = plan.per_round * speed.update
    evaluation = (len(plan.dataset.test) + plan.set_aside) * speed.test
    total = plan.rounds * (training + server) + plan.evaluations * evaluation
    phases = {"training": training, "server": server, "evaluation": evaluation}
    whole = {"round": total / plan.rounds, "total": total}
    return {**phases, **whole, "spread": speed.spread, "repeats": TIMED_ROUNDS}


def deploy(plan: Plan, network: Network, speed: Speed, traffic: ClientBytes) -> dict[str, float]:
    """Add up a round: all download, all train (the slowest counts), all upload, the server averages and evaluates."""
    seconds, count = seconds_here(plan, speed), plan.per_round
    sampled = range(1, min(plan.rounds, SAMPLED_ROUNDS) + 1)
    clients = [sample_clients(plan.experiment, plan.clients, number) for number in sampled]
    slowest = np.mean([plan.samples_per_round[chosen].max() for chosen in clients])
    phases = {
        "download": _transfer(traffic.down, network.down, network.server_up, count),
        "training": float(slowest) * speed.sample / (network.device_speed or 1.0),
        "upload": _transfer(traffic.up, network.up, network.server_down, count),
        "server": seconds["server"] + plan.evaluations / plan.rounds * len(plan.dataset.test) * speed.test,
    }
    busy = sum(phases.values())
    whole = max(busy, network.interval or 0.0)
    sampled_bytes = count * (traffic.down + traffic.up)
    return {
        **phases,
        "round": whole,
        "total": (plan.rounds - 1) * whole + busy,
        "client_rounds": plan.rounds * count / plan.clients,
        "client_bytes": _exact(plan.rounds * sampled_bytes / plan.clients),
        "client_bytes_per_month": _exact(MONTH * sampled_bytes / (plan.clients * whole)),
    }


def _exact(value: float) -> float:
    """Return a whole number as an int, so that JSON shows it as one."""
    return int(value) if value.is_integer() else value


def _transfer(size: int, client: float | None, server: float | None, clients: int) -> float:
    """Return the seconds until all clients have sent or received `size` bytes over their links and the server's."""
    return max(size / (client or math.inf), clients * size / (server or math.inf))


def estimate(plans: Sequence[Plan], network: Network) -> list[dict[str, Any]]:
    """Estimate every plan: plain values in bytes and seconds, as `fedsol estimate --json` prints them."""
    trials = [make_trial(plan) for plan in plans]
    speeds = [time_trial(trial) for trial in trials]
    read = {id(plan.dataset): data_bytes(plan.dataset) for plan in plans if plan.is_real}
    process = max(0, _peak_of_process() - sum(read.values()))
    found = []
    for plan, trial, speed in zip(plans, trials, speeds, strict=True):
        traffic, memory = bytes_per_client(trial), count_memory(plan, process)
        deployment: dict[str, float] | None = None
        if network != Network():
            server = process + memory["frozen"] + memory["server_state"] + plan.per_round * traffic.up
            deployment = deploy(plan, network, speed, traffic)
            deployment |= {"server_memory": server, "client_memory": memory["worker"], "client_disk": traffic.state}
        numbers = {name: getattr(plan, name) for name in ("label", "clients", "per_round", "rounds", "workers")}
        numbers |= {"updates_held": updates_held(plan), "reason_held": reason_held(plan)}
        costs = {"bytes": count_bytes(plan, traffic), "seconds": seconds_here(plan, speed), "memory": memory}
        found.append({**numbers, **costs, "deployment": deployment, "algorithm": plan.experiment.algorithm})
    return found


def _peak_of_process() -> int:
    """Return the peak memory of this process; 0 on Windows, where it is unknown."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def show_bytes(count: float) -> str:
    """Return three significant digits and a binary unit."""
    unit, *larger = "B", "KiB", "MiB", "GiB", "TiB", "PiB"
    while round(count) >= 1000 and larger:
        count, unit = count / 1024, larger.pop(0)
    return f"{_three_figures(count)} {unit}"


def show_seconds(seconds: float) -> str:
    """Return three significant digits and a unit of time."""
    for limit, divisor, unit in ((1.0, 1e-3, "ms"), (120.0, 1, "s"), (7200.0, 60, "min"), (172800.0, 3600, "h")):
        if seconds < limit:
            return f"{_three_figures(seconds / divisor)} {unit}"
    return f"{_three_figures(seconds / 86400)} d"


def _three_figures(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"
