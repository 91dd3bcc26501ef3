"""Cost of a local step: FLOPs, seconds and memory of every method, beside FedAvg's."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.gradients import perturbation
from fedsol.algorithms.proximal import OutputLoss
from fedsol.algorithms.proximal_base import ProximalAlgorithm
from fedsol.algorithms.task import Task
from fedsol.config.catalog import ALGORITHMS
from fedsol.core.memory import peak_bytes
from fedsol.core.messages import State
from fedsol.core.randomness import generator_for, one_torch_thread
from fedsol.core.weights import Weights, add, clone, pick, size_in_bytes
from fedsol.data.batches import Batch
from fedsol.federation.federation import Federation
from fedsol.federation.local_training import give_gradients, make_optimizer, make_task

METHODS: dict[str, dict[str, object]] = {
    **{name: {"name": name} for name in ALGORITHMS if name not in ("fedsol", "fedsol-ablation")},
    "fedsol (head)": {"name": "fedsol"},
    "fedsol (body)": {"name": "fedsol", "perturb": "body"},
    "fedsol (all)": {"name": "fedsol", "perturb": "all"},
    "fedsol (head, L2)": {"name": "fedsol", "proximal": "l2"},
}
"""What is measured if nothing else is asked for: the paper's methods, and FedSOL's partial perturbations."""

AWAY = 0.01
"""Local weights are this share away from their anchor: at the anchor itself, methods take short cuts."""


@dataclass(frozen=True)
class MethodCost:
    """One local step of a method: gradient and optimiser."""

    method: str
    flops: int
    """As fedsol computes it: matrix products and convolutions, as torch counts them."""
    two_pass_flops: int
    """In the paper's form: a perturbed step makes a whole pass at the weights and another at the perturbed ones."""
    proximal_flops: int
    """The part of either that the proximal loss itself needs: the answers of the anchor (the paper's delta)."""
    seconds: float
    """Median; on a processor of one thread's own time."""
    peak_bytes: int
    """Most memory that the step held beyond weights, batch and state."""
    state_bytes: int
    """What each client keeps between its rounds."""


@dataclass(frozen=True)
class Costs:
    """All methods on one model, measured side by side."""

    model: str
    parameters: int
    batch_size: int
    repetitions: int
    methods: tuple[MethodCost, ...]

    def relative(self, value: Callable[[MethodCost], float]) -> dict[str, float]:
        """Every method's value as a multiple of the first one's (FedAvg)."""
        first = value(self.methods[0])
        return {row.method: value(row) / first for row in self.methods}


def costs(federation: Federation, methods: Mapping[str, Algorithm] | None = None, repetitions: int = 20) -> Costs:
    """Measures every method on the federation's model with random batches of its size; FedAvg comes first."""
    chosen = methods or {name: make_algorithm(table) for name, table in METHODS.items()}
    chosen = {"fedavg": make_algorithm({"name": "fedavg"}), **chosen}
    batch = random_batch(federation)
    federation.model.train(True)
    with one_torch_thread():
        steps = {name: LocalStep(federation, algorithm, batch) for name, algorithm in chosen.items()}
        seconds = interleaved(
            {name: step.take for name, step in steps.items()}, repetitions, clock_of(federation.device)
        )
        rows = [
            MethodCost(
                name,
                flops(step.gradient),
                flops(step.two_pass_gradient),
                step.proximal_flops(),
                seconds[name],
                peak_bytes(step.take),
                size_in_bytes(step.own),
            )
            for name, step in steps.items()
        ]
    parameters = sum(federation.initial_weights()[name].numel() for name in federation.model.names)
    return Costs(str(federation.experiment.model.name), parameters, len(batch), repetitions, tuple(rows))


def step_seconds(
    federation: Federation, methods: Mapping[str, Algorithm], repetitions: int, warm_up: int = 2
) -> dict[str, float]:
    """Only the seconds of a local step of every method: for models so large that counting the rest takes long."""
    batch = random_batch(federation)
    federation.model.train(True)
    with one_torch_thread():
        steps = {name: LocalStep(federation, algorithm, batch).take for name, algorithm in methods.items()}
        return interleaved(steps, repetitions, clock_of(federation.device), warm_up)


class LocalStep:
    """One step of a method, away from the anchor, again and again on the same batch."""

    def __init__(self, federation: Federation, algorithm: Algorithm, batch: Batch) -> None:
        settings, initial = federation.experiment.client, federation.initial_weights()
        anchor, buffers = pick(initial, federation.model.names), pick(initial, federation.model.buffers)
        self.algorithm, self.batch = algorithm, batch
        self.task: Task = make_task(federation.model, initial, settings.lr, settings.momentum)
        self.local: Weights = clone(add(anchor, anchor, AWAY))
        self.own: State = algorithm.init_client(add(anchor, anchor, -AWAY), buffers)
        self.state: State = algorithm.begin(self.task, algorithm.init_server(anchor), self.own)
        self._optimizer = make_optimizer(settings, list(self.local.values()), settings.lr)

    def gradient(self) -> tuple[Weights, Tensor]:
        """As fedsol computes it."""
        return self.algorithm.gradient(self.task, self.local, self.batch, self.state)

    def two_pass_gradient(self) -> tuple[Weights, Tensor]:
        """The same gradient with nothing shared between the point and the perturbed point."""
        algorithm = self.algorithm
        how = algorithm.perturbation
        proximal = algorithm.proximal_loss(self.task, self.state) if isinstance(algorithm, ProximalAlgorithm) else None
        if how is None or proximal is None:
            return self.gradient()
        direction = proximal.gradient(self.task.at(self.local, self.batch), how.where)
        step = perturbation(direction, self.local, self.task.anchor, how.rho, how.strength)
        return self.task.at(add(self.local, step), self.batch).gradient()

    def proximal_flops(self) -> int:
        """FLOPs of the proximal loss, given the outputs of the model itself."""
        algorithm = self.algorithm
        proximal = algorithm.proximal_loss(self.task, self.state) if isinstance(algorithm, ProximalAlgorithm) else None
        if not isinstance(proximal, OutputLoss):
            return 0
        point = self.task.at(self.local, self.batch)
        outputs = point.outputs
        return flops(lambda: proximal.loss(outputs, point))

    def take(self) -> None:
        """Gradient and optimiser."""
        gradient, _ = self.gradient()
        give_gradients(self.local, gradient)
        self._optimizer.step()
        for tensor in self.local.values():
            tensor.grad = None


def random_batch(federation: Federation) -> Batch:
    """Inputs and labels of the right shapes; what they are does not change the cost."""
    dataset, size = federation.dataset, federation.experiment.client.batch_size
    generator = generator_for(federation.experiment.seed, "cost")
    inputs = torch.randn(size, *dataset.input_shape, generator=generator)
    labels = torch.randint(dataset.classes, (size,), generator=generator)
    return Batch(inputs.to(federation.device), labels.to(federation.device))


def flops(action: Callable[[], object]) -> int:
    """Matrix products and convolutions, as torch's own counter counts them."""
    with FlopCounterMode(display=False) as counter:
        action()
    return int(counter.get_total_flops())


def clock_of(device: torch.device) -> Callable[[], float]:
    """Seconds of this process on a processor, which other programs do not lengthen; of the wall clock on a GPU."""
    if device.type != "cuda":
        return time.process_time

    def synchronised() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronised


def interleaved(
    actions: Mapping[str, Callable[[], object]],
    repetitions: int,
    clock: Callable[[], float] = time.perf_counter,
    warm_up: int = 2,
) -> dict[str, float]:
    """Median seconds of each action; they take turns, so that a busy moment of the machine hits all alike."""
    for _ in range(warm_up):
        for action in actions.values():
            action()
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(repetitions):
        for name, action in actions.items():
            start = clock()
            action()
            seconds[name].append(clock() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}
