"""How long a local step, a client's job, an aggregation and an evaluation take on this machine: measured, briefly.

The measurements go through the engine that a run would use, with as many workers, so that what workers cost each other
(messages, shared caches and memory) is in them.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from fedsol.core.messages import Job, ServerState, State, Update
from fedsol.core.randomness import one_torch_thread
from fedsol.engines import make_engine
from fedsol.engines.base import Engine
from fedsol.federation.federation import Federation, assemble
from fedsol.federation.tasks import Train
from fedsol.studies.estimate.plan import Plan, calibration_split
from fedsol.studies.estimate.traffic import initial_server
from fedsol.training.aggregation import aggregate
from fedsol.training.checks import reason_to_reject
from fedsol.training.loop import evaluate_test
from fedsol.training.updates import expected_answers

T = TypeVar("T")

STEPS = 4
"""Local steps of the longer jobs."""
WAVES = 3
"""Jobs per worker in the measurement that tells what a job costs from what a round costs."""
EVALUATION_BATCHES = 8
"""Batches per worker in a measured evaluation."""


@dataclass(frozen=True)
class Effort:
    """How long measuring may take for each method, and how often it is repeated; twice at least, unless `enough`."""

    seconds: float = 4.0
    fewest: int = 4
    most: int = 15
    enough: float = math.inf
    """A first repeat of so many seconds is the only one: what it spends on warming up is a small part of it."""


@dataclass(frozen=True)
class Laps:
    """Seconds of one repeat of every measurement; each is as long as one worker takes, with all of them busy."""

    short: float
    """A job of one step on a full batch."""
    waves: float
    """`WAVES` of them, one after another."""
    long: float
    """A job of `STEPS` steps on full batches."""
    narrow: float
    """A job of `STEPS` steps on smaller batches."""
    server: float
    """Checking and aggregating one update."""
    evaluation: float
    """Evaluating one example."""


@dataclass(frozen=True)
class Costs:
    """Seconds on this machine."""

    round: float
    """Handing the global weights out."""
    job: float
    """A client's job beside its steps."""
    step: float
    """A step, whatever the size of its batch."""
    example: float
    """An example in a step, on top of it."""
    update: float
    """Checking and aggregating one update."""
    evaluation: float
    """Evaluating one example of the test set."""


@dataclass(frozen=True)
class Calibration:
    """What was found out about one method."""

    costs: Costs
    spread: float
    """Of the repeats, as a share: see `spread_of`."""
    repeats: int


def calibrate(plans: Sequence[Plan], effort: Effort | None = None) -> list[Calibration]:
    """Measures the methods of several plans in turn, so that whatever else the machine does meets all of them alike."""
    effort = effort or Effort()
    with one_torch_thread(), ExitStack() as stack:
        benches = [Bench(plan) for plan in plans]
        engines = [stack.enter_context(make_engine(bench.federation)) for bench in benches]
        every_lap: list[list[Laps]] = []
        start = time.perf_counter()
        for repeat in range(effort.most + 1):
            if repeat == 1:
                if time.perf_counter() - start > effort.enough * len(plans):
                    break
                start = time.perf_counter()
                every_lap.clear()  # the first one only warmed up caches and allocators
            elif repeat > effort.fewest and time.perf_counter() - start > effort.seconds * len(plans):
                break
            every_lap.append([bench.lap(engine) for bench, engine in zip(benches, engines, strict=True)])
    by_method = zip(*every_lap, strict=True)
    return [_calibration(bench, laps) for bench, laps in zip(benches, by_method, strict=True)]


def _calibration(bench: "Bench", laps: Sequence[Laps]) -> Calibration:
    medians = Laps(**{name: statistics.median(vars(lap)[name] for lap in laps) for name in vars(laps[0])})
    costs = costs_of(medians, bench.full, bench.narrow)
    return Calibration(costs, spread_of([lap.long for lap in laps]), len(laps))


def costs_of(laps: Laps, full: int, narrow: int) -> Costs:
    """Costs from measurements with batches of `full` and of `narrow` examples; noise makes none of them negative."""
    job_of_one_step = max(0.0, (laps.waves - laps.short) / (WAVES - 1))
    full_step = max(0.0, (laps.long - laps.short) / (STEPS - 1))
    example = 0.0
    if full > narrow:
        example = min(max(0.0, (laps.long - laps.narrow) / (STEPS * (full - narrow))), full_step / full)
    return Costs(
        round=max(0.0, laps.short - job_of_one_step),
        job=max(0.0, job_of_one_step - full_step),
        step=full_step - full * example,
        example=example,
        update=laps.server,
        evaluation=laps.evaluation,
    )


def spread_of(values: Sequence[float]) -> float:
    """Half the way from the 10th to the 90th percentile, as a share of the median; 0 for one value."""
    if len(values) < 2:
        return 0.0
    deciles = statistics.quantiles(values, n=10, method="inclusive")
    return (deciles[-1] - deciles[0]) / 2 / deciles[4]


class Bench:
    """A small federation of the plan's model, method and batches, made to be timed."""

    def __init__(self, plan: Plan) -> None:
        self.workers = plan.workers
        self.federation = bench_for(plan)
        self.full, self.narrow = batch_sizes(plan)
        self._algorithm = self.federation.algorithm
        self._server = initial_server(self.federation)
        self._settings = self.federation.experiment.server
        self._expected = expected_answers(self.federation, self._server, self._state(0), keeps_states=False)

    def lap(self, engine: Engine) -> Laps:
        """Takes every measurement once."""
        first, second = list(range(self.workers)), list(range(self.workers, 2 * self.workers))
        short, updates = self._train(engine, first, 1 / STEPS)
        waves, _ = self._train(engine, first * WAVES, 1 / STEPS)
        long, _ = self._train(engine, first, 1.0)
        narrow, _ = self._train(engine, second, 1.0)
        evaluation, _ = timed(lambda: evaluate_test(engine, self.federation, dict(self._server.weights)))
        server, _ = timed(lambda: self._aggregate(updates))
        examples = len(self.federation.dataset.test)
        return Laps(short, waves, long, narrow, server / len(updates), evaluation / examples)

    def _train(self, engine: Engine, clients: list[int], work: float) -> tuple[float, list[Update]]:
        weights = dict(self._server.weights)  # another dict than before: a round hands its weights out anew
        broadcast = self._algorithm.broadcast(self._server)
        tasks = [Train(Job(client, 1, weights, broadcast, work=work), self._state) for client in clients]
        return timed(lambda: [answer for _, answer in engine.run(tasks) if isinstance(answer, Update)])

    def _state(self, _client: int) -> State:
        return self.federation.initial_state()

    def _aggregate(self, updates: list[Update]) -> ServerState:
        for update in updates:
            reason_to_reject(update, self._server, *self._expected)
        shared = [replace(update, share=1 / len(updates)) for update in updates]
        return aggregate(self._settings, self._algorithm, self._server, shared)


def batch_sizes(plan: Plan) -> tuple[int, int]:
    """The largest batch that any client has, and one of a quarter of it."""
    full = int(min(plan.experiment.client.batch_size, plan.sizes.max()))
    return full, max(1, full // 4)


def bench_for(plan: Plan) -> Federation:
    """The plan's model and method with twice as many clients as workers: half with one full batch, half with less."""
    full, narrow = batch_sizes(plan)
    experiment = plan.experiment.override(
        {
            "client.epochs": STEPS,
            "client.batch_size": full,
            "server.fraction": 1.0,
            "engine.kind": "local" if plan.workers == 1 else "workers",
            "engine.workers": plan.workers,
        }
    )
    examples = min(plan.data.test_size, EVALUATION_BATCHES * plan.workers * experiment.server.evaluate_batch)
    dataset = replace(
        plan.data.dataset,
        train=calibration_split(plan.data.dataset.train, full),
        test=calibration_split(plan.data.dataset.test, examples),
    )
    partition = [torch.arange(count) for count in (full, narrow) for _ in range(plan.workers)]
    return assemble(experiment, dataset, partition)


def timed(call: Callable[[], T]) -> tuple[float, T]:
    """Seconds of a call, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result
