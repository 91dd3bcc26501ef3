"""How long runs will take on this machine: a few local steps are measured, the rest is counted."""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from fedsol.algorithms import make_algorithm
from fedsol.client import make_optimizer, make_task
from fedsol.data.batches import Batch
from fedsol.data.datasets import SPECS
from fedsol.experiment import Experiment
from fedsol.models.build import ModelShape, build_split_model
from fedsol.models.split import SplitModel
from fedsol.randomness import key_for, one_torch_thread
from fedsol.weights import clone, pick

WARM_UP, MEASURED = 1, 3


@dataclass(frozen=True)
class Speed:
    """Seconds of one local step and of testing one batch, by one process with one thread."""

    step: float
    test: float


def estimate(experiments: Sequence[Experiment], say: Callable[[str], None] = lambda _: None) -> list[float]:
    """Seconds that each experiment will take; every kind of step (model, data, algorithm) is measured once."""
    speeds: dict[str, Speed] = {}
    seconds = []
    for experiment in experiments:
        kind = f"{experiment.data.name} {experiment.model} {experiment.algorithm} {experiment.client.batch_size}"
        if kind not in speeds:
            speeds[kind] = measure(experiment)
            label = f"{experiment.model.name} on {experiment.data.name}, {experiment.algorithm['name']}"
            say(f"{label}: {speeds[kind].step:.3f} s for a local step, {speeds[kind].test:.3f} s for a test batch")
        seconds.append(_seconds(experiment, speeds[kind]))
    return seconds


def measure(experiment: Experiment) -> Speed:
    """Times steps on random inputs of the dataset's shape: neither time depends on what is in them."""
    spec = SPECS[experiment.data.name]
    shape = ModelShape((spec.channels, *spec.shape[1:]), spec.classes)
    assert experiment.model.name is not None
    with one_torch_thread():
        model = build_split_model(experiment.model.name, experiment.model.options, shape, key_for(0, "model"))
        batch = _batch(shape, experiment.client.batch_size)
        return Speed(_step_seconds(experiment, model, batch), _test_seconds(model, batch))


def _step_seconds(experiment: Experiment, model: SplitModel, batch: Batch) -> float:
    algorithm = make_algorithm(experiment.algorithm)
    weights = model.initial_weights()
    task = make_task(model, weights, experiment.client.lr, experiment.client.momentum)
    parameters, buffers = pick(weights, model.names), pick(weights, model.buffers)
    broadcast = algorithm.init_server(parameters)
    state = algorithm.begin(task, broadcast, algorithm.init_client(parameters, buffers))
    local = clone(task.anchor)
    optimizer = make_optimizer(experiment.client, list(local.values()), experiment.client.lr)
    model.train(True)

    def step() -> None:
        gradients, _ = algorithm.gradient(task, local, batch, state)
        for name, tensor in local.items():
            tensor.grad = gradients[name]
        optimizer.step()

    return _timed(step)


def _test_seconds(model: SplitModel, batch: Batch) -> float:
    weights = model.initial_weights()
    model.train(False)

    def test() -> None:
        with torch.no_grad():
            model.outputs(weights, batch.inputs)

    return _timed(test)


def _timed(action: Callable[[], None]) -> float:
    """The quickest of a few: what another process takes away is not the machine's fault."""
    for _ in range(WARM_UP):
        action()
    times = []
    for _ in range(MEASURED):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def _batch(shape: ModelShape, size: int) -> Batch:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(size, *shape.input_shape, generator=generator)
    return Batch(inputs, torch.randint(shape.classes, (size,), generator=generator))


def _seconds(experiment: Experiment, speed: Speed) -> float:
    spec = SPECS[experiment.data.name]
    clients = experiment.data.partition.clients or spec.clients
    sampled = max(1, round((experiment.server.fraction or spec.fraction) * clients))
    samples = experiment.data.part * spec.train_size / clients
    steps = sampled * experiment.client.epochs * math.ceil(samples / experiment.client.batch_size)
    rounds = experiment.rounds or spec.rounds
    tested = math.ceil(experiment.data.part * spec.test_size / experiment.server.evaluate_batch)
    tests = tested * speed.test * math.ceil(rounds / experiment.server.evaluate_every)
    processes = 1 if experiment.engine.kind == "local" else experiment.engine.workers or os.cpu_count() or 1
    return (rounds * steps * speed.step + tests) / processes
