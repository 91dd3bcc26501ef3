"""Cost of a local step: FLOPs, seconds and memory of every method, relative to FedAvg's."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.directions import ProximalGradient
from fedsol.algorithms.perturbed import PerturbedAlgorithm
from fedsol.algorithms.proximal import OutputLoss, Proximal
from fedsol.algorithms.proximal_base import ProximalAlgorithm
from fedsol.algorithms.task import Point, Task
from fedsol.analysis.base import Analysis, Runs
from fedsol.config.experiment import Experiment
from fedsol.core.memory import peak_bytes
from fedsol.core.messages import State
from fedsol.core.randomness import generator_for, one_torch_thread
from fedsol.core.weights import Weights, add, clone, pick, size_in_bytes
from fedsol.data.batches import Batch, evaluation_batches
from fedsol.data.catalog import SPECS, load_dataset
from fedsol.data.types import Dataset, Split
from fedsol.errors import InputError
from fedsol.federation.federation import Federation, assemble, fill_defaults
from fedsol.federation.local_training import make_task
from fedsol.federation.optimizer import make_optimizer
from fedsol.plots.panels import bar_panel
from fedsol.plots.style import INK, Figure, new_figure
from fedsol.studies.variants import parse_variants

BASELINES = (
    *("fedavg", "fedprox", "fednova", "scaffold", "fedntd", "fedsam", "fedasam", "feddyn", "moon"),
    *("local-only", "perfedavg", "fedbabu", "fedper", "fedrep", "fedbn", "lg-fedavg", "ditto", "knn-per"),
)
METHODS: dict[str, dict[str, object]] = {
    **{name: {"name": name} for name in BASELINES},
    "fedsol (head)": {"name": "fedsol"},
    "fedsol (body)": {"name": "fedsol", "perturb": "body"},
    "fedsol (all)": {"name": "fedsol", "perturb": "all"},
    "fedsol (head, L2)": {"name": "fedsol", "proximal": "l2"},
}
"""What is measured by default: the paper's methods, and FedSOL's partial perturbations."""

AWAY = 0.01
"""Local weights are this share away from their anchor: at the anchor itself, methods take shortcuts."""


@dataclass(frozen=True)
class MethodCost:
    """One local step of a method: gradient and optimizer."""

    method: str
    flops: int
    """As fedsol computes it: matrix products and convolutions, as torch counts them."""
    two_pass_flops: int
    """In the paper's form: a perturbed step makes a whole pass at the weights and another at the perturbed ones."""
    proximal_flops: int
    """The part of either that the proximal loss itself needs: the answers of the anchor (the paper's delta)."""
    seconds: float
    """Median; on a CPU, the time of one thread."""
    peak_bytes: int
    """Peak memory of the step beyond weights, batch and state."""
    state_bytes: int
    """What each client stores between its rounds."""


@dataclass(frozen=True)
class Costs:
    """All methods on one model, measured side by side."""

    model: str
    parameters: int
    batch_size: int
    repetitions: int
    methods: tuple[MethodCost, ...]


def costs(federation: Federation, methods: Mapping[str, Algorithm] | None = None, repetitions: int = 20) -> Costs:
    """Measure every method on the federation's model with random batches of its size; FedAvg comes first."""
    chosen = methods or {name: make_algorithm(table) for name, table in METHODS.items()}
    chosen = {"fedavg": make_algorithm({"name": "fedavg"}), **chosen}
    seconds, batch = step_seconds(federation, chosen, repetitions), random_batch(federation)
    rows = []
    with one_torch_thread():
        for name, algorithm in chosen.items():
            step = LocalStep(federation, algorithm, batch)
            counted = flops(step.gradient), flops(step.two_pass_gradient), step.proximal_flops()
            rows.append(MethodCost(name, *counted, seconds[name], peak_bytes(step.take), size_in_bytes(step.own)))
    parameters = sum(federation.initial_weights()[name].numel() for name in federation.model.names)
    return Costs(str(federation.experiment.model.name), parameters, len(batch), repetitions, tuple(rows))


def step_seconds(
    federation: Federation, methods: Mapping[str, Algorithm], repetitions: int, warm_up: int = 2
) -> dict[str, float]:
    """Return only the seconds of a local step of every method: for large models, counting the rest is slow."""
    batch = random_batch(federation)
    with one_torch_thread():
        steps = {name: LocalStep(federation, algorithm, batch).take for name, algorithm in methods.items()}
        return interleaved(steps, repetitions, clock_of(federation.device), warm_up)


class LocalStep:
    """One step of a method, away from the anchor, repeated on the same batch."""

    def __init__(self, federation: Federation, algorithm: Algorithm, batch: Batch) -> None:
        federation.model.train(True)
        settings, initial = federation.experiment.client, federation.initial_weights()
        anchor, buffers = pick(initial, federation.model.names), pick(initial, federation.model.buffers)
        self.algorithm, self.batch = algorithm, batch
        task = make_task(federation.model, initial, settings.lr, settings.momentum, federation.objective)
        self.task: Task = replace(task, labels=lambda: batch.labels)
        self.local: Weights = clone(add(anchor, anchor, AWAY))
        server = algorithm.init_server(anchor)
        first = algorithm.begin(self.task, server, algorithm.init_client(add(anchor, anchor, -AWAY), buffers))
        self.own: State = algorithm.finish(self.task, self.local, 1, first)[0]
        self.state: State = algorithm.begin(self.task, server, self.own)
        self.proximal: Proximal | None = None
        if isinstance(algorithm, ProximalAlgorithm):
            self.proximal = algorithm.proximal_loss(self.task, self.state)
        elif isinstance(algorithm, PerturbedAlgorithm) and isinstance(algorithm.along, ProximalGradient):
            self.proximal = algorithm.along.proximal
        self._optimizer = make_optimizer(settings, self.local, settings.lr)

    def gradient(self) -> tuple[Weights, Tensor]:
        """Return the gradient as fedsol computes it."""
        return self.algorithm.gradient(self.task, self.local, self.batch, self.state)

    def two_pass_gradient(self) -> tuple[Weights, Tensor]:
        """Return the same gradient with nothing shared between the point and the perturbed point."""
        task = _WholePasses(**{field.name: getattr(self.task, field.name) for field in fields(Task)})
        return self.algorithm.gradient(task, self.local, self.batch, self.state)

    def proximal_flops(self) -> int:
        """Return the FLOPs of the proximal loss, given the outputs of the model itself."""
        proximal, point = self.proximal, self.task.at(self.local, self.batch)
        if not isinstance(proximal, OutputLoss):
            return 0
        outputs = point.outputs
        return flops(lambda: proximal.loss(outputs, point))

    def take(self) -> None:
        """Take the step: gradient and optimizer."""
        gradient, _ = self.gradient()
        self._optimizer.step(gradient)


class _WholePass(Point):
    _shares_body = False


class _WholePasses(Task):
    """A task whose perturbed points share nothing with the points that they come from."""

    def at(self, weights: Weights, batch: Batch) -> Point:
        return _WholePass(self, weights, batch)


def random_batch(federation: Federation) -> Batch:
    """Return inputs and labels of the right shapes; their values do not change the cost.

    Only for classes of samples are they random; other tasks take the first samples of the training set.
    """
    dataset, size = federation.dataset, federation.experiment.client.batch_size
    if federation.objective.kind != "classification" or not isinstance(dataset.train.inputs, Tensor):
        return next(evaluation_batches(dataset.train, dataset, size, federation.device))
    generator = generator_for(federation.experiment.seed, "cost")
    inputs = torch.randn(size, *dataset.input_shape, generator=generator)
    labels = torch.randint(dataset.classes, (size,), generator=generator)
    return Batch(inputs.to(federation.device), labels.to(federation.device))


def flops(action: Callable[[], object]) -> int:
    """Count matrix products and convolutions, with torch's own counter."""
    with FlopCounterMode(display=False) as counter:
        action()
    return int(counter.get_total_flops())


def clock_of(device: torch.device) -> Callable[[], float]:
    """Return a clock: CPU time, which other programs do not affect, or the wall clock for a GPU."""
    if device.type != "cuda":
        return time.process_time

    def synchronized() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronized


def interleaved(
    actions: Mapping[str, Callable[[], object]],
    repetitions: int,
    clock: Callable[[], float] = time.perf_counter,
    warm_up: int = 2,
) -> dict[str, float]:
    """Return the median seconds of each action; they take turns, so that a busy moment affects all of them equally."""
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


def without_data(experiment: Experiment) -> Federation:
    """Return the experiment's model and settings with no clients. A named dataset does not have to be on disk."""
    spec = SPECS.get(experiment.data.name)
    if spec is None:
        dataset = load_dataset(experiment.data, experiment.task.kind)
    else:
        side = experiment.data.image_size or spec.image_size
        shape = (spec.shape[0], side, side) if side else spec.shape
        empty = Split(torch.empty((0, *shape), dtype=torch.uint8), torch.empty(0, dtype=torch.int64))
        channels = experiment.data.channels or spec.channels
        dataset = Dataset(spec.name, empty, empty, spec.classes, spec.mean, spec.std, channels=channels)
    return assemble(fill_defaults(experiment, dataset), dataset, [])


@dataclass(frozen=True)
class CostAnalysis(Analysis[Costs]):
    """FLOPs (as computed, and in the paper's two passes), time and peak memory, relative to FedAvg's."""

    stem = "cost"
    repetitions: int = 20
    """Timed steps of each method."""
    algorithms: tuple[str, ...] = ()
    """Methods as `fedsol compare` takes them; empty for `METHODS`."""

    def __post_init__(self) -> None:
        if self.repetitions < 1:
            raise InputError(f"--repetitions: must be 1 or more (got {self.repetitions})")

    def check(self, runs: Runs) -> None:
        self._methods(runs.experiment)

    def _methods(self, experiment: Experiment) -> dict[str, Algorithm]:
        variants = parse_variants(self.algorithms, experiment) if self.algorithms else []
        return {variant.label: make_algorithm(variant.experiment.algorithm) for variant in variants}

    def measure(self, runs: Runs) -> Costs:
        return costs(without_data(runs.experiment), self._methods(runs.experiment), self.repetitions)

    def draw(self, found: Costs, subject: str) -> Figure:
        names, base = [row.method for row in found.methods], found.methods[0]
        title = f"cost of a local step: {found.model}, {found.parameters:,} weights, batches of {found.batch_size}"
        figure = new_figure(9.6, 1.9 + 0.34 * len(names), title)
        columns = {
            "FLOPs": {
                "as fedsol computes it": [(row.flops / base.flops, 0.0) for row in found.methods],
                "in two whole passes": [(row.two_pass_flops / base.flops, 0.0) for row in found.methods],
            },
            "time": {"": [(row.seconds / base.seconds, 0.0) for row in found.methods]},
            "peak memory": {"": [(row.peak_bytes / base.peak_bytes, 0.0) for row in found.methods]},
        }
        panels = figure.subplots(1, 3, sharey=True, width_ratios=(1.25, 1, 1))
        for axes, (heading, bars) in zip(panels, columns.items(), strict=True):
            patches = bar_panel(axes, names, bars, "× FedAvg", horizontal=True)
            axes.set_title(heading)
            if len(bars) > 1:
                figure.legend(patches, list(bars), loc="outside lower left", ncols=2)
            for container in axes.containers:
                axes.bar_label(container, fmt="%.2f", padding=3, fontsize=7 if len(bars) > 1 else 7.5)
            axes.axvline(1.0, color=INK, linewidth=0.7)
            axes.margins(x=0.15)
        return figure

    def say(self, found: Costs) -> list[str]:
        base = found.methods[0]
        return [
            f"{row.method}: FLOPs {row.flops / base.flops:.2f} (two passes {row.two_pass_flops / base.flops:.2f}, of "
            f"these the proximal loss {row.proximal_flops / base.flops:.2f}), time {row.seconds / base.seconds:.2f}, "
            f"peak memory {row.peak_bytes / base.peak_bytes:.4f}"
            for row in found.methods
        ]
