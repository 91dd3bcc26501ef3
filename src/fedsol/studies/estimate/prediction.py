"""From a plan, its costs and its bytes to what a round and the whole federation take."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsol.errors import InputError
from fedsol.federation.sampling import sample_clients
from fedsol.studies.estimate.calibration import Calibration, Costs, Effort, bench_for, calibrate
from fedsol.studies.estimate.footprint import Footprint, footprint, memory_of_this_process
from fedsol.studies.estimate.plan import Plan
from fedsol.studies.estimate.traffic import ClientBytes, bytes_per_client

MONTH = 30 * 86400.0
DRAWS = 1_000_000
"""Clients drawn at most to find out how long rounds of unequal clients are."""


@dataclass(frozen=True)
class Network:
    """What is stated about a deployment. Bandwidths are in bytes per second; None is not counted."""

    up: float | None = None
    down: float | None = None
    server_up: float | None = None
    server_down: float | None = None
    device_speed: float | None = None
    """Speed of a client's device, as a multiple of one worker of this machine (default 1)."""
    interval: float | None = None
    """A round begins this many seconds after the one before, or later if that one takes longer."""

    def check(self) -> None:
        """Raises `InputError` for a device that does not compute."""
        if self.device_speed is not None and not 0 < self.device_speed < float("inf"):
            raise InputError(f"--device-speed: {self.device_speed} is not allowed: must be above 0")

    @property
    def is_stated(self) -> bool:
        """Whether there is anything to say about a deployment."""
        return any(value is not None for value in vars(self).values())


@dataclass(frozen=True)
class Bytes:
    """Traffic: of a client in a round, of a round, and of all rounds."""

    client_down: int
    client_up: int
    client_state: int
    client_test: int
    round_down: int
    round_up: int
    total_down: int
    total_up: int


@dataclass(frozen=True)
class Seconds:
    """Time on this machine."""

    training: float
    """Of a round: until its last client is finished."""
    server: float
    """Of a round: checking and aggregating the updates."""
    evaluation: float
    """Of a round that is evaluated."""
    round: float
    """The mean over all rounds, evaluated or not."""
    total: float
    spread: float
    """Of repeated measurements, as a share."""
    repeats: int


@dataclass(frozen=True)
class Deployment:
    """Seconds of a round outside this machine, one phase after another, and what a client contributes."""

    download: float
    training: float
    upload: float
    server: float
    round: float
    """With the pause up to the next one, if an interval is stated."""
    total: float
    client_rounds: float
    """Rounds that a client is expected to take part in."""
    client_bytes: float
    """Bytes that a client is expected to receive and send in all."""
    client_bytes_per_month: float
    """The same in 30 days of such rounds."""
    server_memory: int
    """Without data and client states, which stay with the clients."""
    client_memory: int
    """A client's tensors and messages."""
    client_disk: int
    """A client's state."""


@dataclass(frozen=True)
class Estimate:
    """What one method costs."""

    label: str
    clients: int
    per_round: int
    rounds: int
    workers: int
    bytes: Bytes
    seconds: Seconds
    memory: Footprint
    costs: Costs
    deployment: Deployment | None


def estimate(plans: Sequence[Plan], network: Network, effort: Effort | None = None) -> list[Estimate]:
    """Counts and measures."""
    network.check()
    calibrations = calibrate(plans, effort)
    read = {id(plan.data): plan.data.bytes for plan in plans if plan.data.is_real}
    process = max(0, memory_of_this_process() - sum(read.values()))
    found = []
    for plan, calibration in zip(plans, calibrations, strict=True):
        bench = bench_for(plan)
        traffic = bytes_per_client(bench)
        memory = footprint(plan, bench, traffic, process)
        seconds = seconds_here(plan, calibration)
        deployment = deploy(plan, network, traffic, calibration, memory) if network.is_stated else None
        found.append(
            Estimate(
                plan.label,
                plan.clients,
                plan.per_round,
                plan.rounds,
                plan.workers,
                count_bytes(plan, traffic),
                seconds,
                memory,
                calibration.costs,
                deployment,
            )
        )
    return found


def count_bytes(plan: Plan, traffic: ClientBytes) -> Bytes:
    """Every sampled client is sent a job; those that drop out do not answer. Testers are sent the new weights."""
    down = plan.per_round * traffic.down
    up = round(plan.per_round * traffic.up * (1 - plan.experiment.faults.dropout))
    tests = plan.evaluations * plan.testers * traffic.test
    return Bytes(*traffic, down, up, plan.rounds * down + tests, plan.rounds * up)


def seconds_here(plan: Plan, calibration: Calibration) -> Seconds:
    """Time of a simulation on this machine."""
    costs = calibration.costs
    jobs = job_seconds(plan, costs)
    training = costs.round + float(np.mean([makespan(jobs[clients], plan.workers) for clients in drawn_rounds(plan)]))
    server = plan.per_round * costs.update
    evaluation = plan.data.test_size * costs.evaluation
    total = plan.rounds * (training + server) + plan.evaluations * evaluation
    return Seconds(training, server, evaluation, total / plan.rounds, total, calibration.spread, calibration.repeats)


def deploy(
    plan: Plan, network: Network, traffic: ClientBytes, calibration: Calibration, memory: Footprint
) -> Deployment:
    """A round of a deployment: all download, all train, all upload, then the server aggregates and evaluates."""
    costs = calibration.costs
    jobs = job_seconds(plan, costs) / (network.device_speed or 1.0)
    training = float(np.mean([jobs[clients].max() for clients in drawn_rounds(plan)]))
    download = max(_transfer(traffic.down, network.down), _transfer(plan.per_round * traffic.down, network.server_up))
    upload = max(_transfer(traffic.up, network.up), _transfer(plan.per_round * traffic.up, network.server_down))
    evaluation = plan.evaluations / plan.rounds * plan.data.test_size * costs.evaluation
    server = plan.per_round * costs.update + evaluation
    busy = download + training + upload + server
    whole = max(busy, network.interval or 0.0)
    share = plan.per_round / plan.clients
    both = traffic.down + traffic.up
    return Deployment(
        download=download,
        training=training,
        upload=upload,
        server=server,
        round=whole,
        total=(plan.rounds - 1) * whole + busy,
        client_rounds=plan.rounds * share,
        client_bytes=plan.rounds * share * both,
        client_bytes_per_month=MONTH / whole * share * both,
        server_memory=memory.process + memory.server_state + memory.updates,
        client_memory=memory.worker,
        client_disk=traffic.state,
    )


def _transfer(count: int, bandwidth: float | None) -> float:
    return 0.0 if bandwidth is None else count / bandwidth


def job_seconds(plan: Plan, costs: Costs) -> NDArray[np.float64]:
    """How long every client's job takes a worker of this machine."""
    sizes, client = plan.sizes, plan.experiment.client
    steps = -(-sizes // client.batch_size)
    return np.asarray(costs.job + client.epochs * (steps * costs.step + sizes * costs.example))


def drawn_rounds(plan: Plan) -> Iterable[list[int]]:
    """Clients of rounds as the run would sample them: one round if all clients are alike, else many."""
    if plan.sizes.min() == plan.sizes.max():
        return [list(range(plan.per_round))]
    count = min(plan.rounds, max(1, DRAWS // plan.clients))
    return [sample_clients(plan.experiment, plan.clients, number) for number in range(1, count + 1)]


def makespan(jobs: NDArray[np.float64], workers: int) -> float:
    """When the last job ends, if whoever is free takes the longest that is left: as the workers engine deals them."""
    busy_until = [0.0] * workers
    for seconds in sorted(jobs.tolist(), reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + seconds)
    return max(busy_until)
