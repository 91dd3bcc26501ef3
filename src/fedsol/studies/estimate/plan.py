"""Plan: whom an estimate is about. The experiment with the stated numbers, and how many samples every client has."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedsol.algorithms import find_algorithm
from fedsol.config.experiment import Experiment
from fedsol.config.tables import DataSettings
from fedsol.core.randomness import generator_for, numpy_generator_for
from fedsol.data.catalog import SPECS, stored_shape
from fedsol.data.files import DatasetFiles
from fedsol.data.partition import make_partition
from fedsol.data.types import Dataset, DatasetSpec, Split
from fedsol.engines import available_cores
from fedsol.errors import InputError
from fedsol.federation.federation import fill_defaults, load_dataset, partition_of, presented
from fedsol.federation.sampling import sample_size
from fedsol.studies.variants import Variant

STAND_IN = 1000
"""Images that stand in for a split whose files are not there; no measurement needs more."""


@dataclass(frozen=True)
class Request:
    """What the command line states about the federation; None leaves the experiment's own."""

    clients: int | None = None
    per_round: int | None = None
    rounds: int | None = None
    examples: int | None = None
    """Samples of every client."""

    def check(self) -> None:
        """Raises `InputError` for numbers that no federation has."""
        for field, value in vars(self).items():
            if value is not None and value < 1:
                option = f"--{field.replace('_', '-')}"
                raise InputError(f"{option}: {value} is not allowed: must be 1 or more")


@dataclass(frozen=True)
class Data:
    """The dataset, or what stands in for it, and its size in full."""

    dataset: Dataset
    train_size: int
    test_size: int
    is_real: bool

    @property
    def bytes(self) -> int:
        """Memory of both splits with their labels."""
        inputs = self.dataset.train.inputs
        per_sample = inputs[0].numel() * inputs.element_size() + self.dataset.train.labels.element_size()
        return (self.train_size + self.test_size) * per_sample


@dataclass(frozen=True)
class Plan:
    """An experiment with every number known."""

    label: str
    experiment: Experiment
    data: Data
    sizes: NDArray[np.int64]
    """Samples of every client."""
    assumptions: tuple[str, ...]

    @property
    def clients(self) -> int:
        """Number of all clients."""
        return len(self.sizes)

    @property
    def per_round(self) -> int:
        """Number of clients in a round."""
        return sample_size(self.experiment, self.clients)

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        assert self.experiment.rounds is not None
        return self.experiment.rounds

    @property
    def workers(self) -> int:
        """Clients that this machine trains side by side."""
        engine = self.experiment.engine
        return 1 if engine.kind == "local" else min(engine.workers or available_cores(), self.per_round)

    @property
    def evaluations(self) -> int:
        """Rounds after which the global model is evaluated."""
        return sum(self.experiment.is_evaluated(round_number) for round_number in range(1, self.rounds + 1))

    @property
    def testers(self) -> int:
        """Clients that are sent the global model to test it on what they held out."""
        if not self.experiment.data.partition.held_out:
            return 0
        return min(self.experiment.server.evaluate_clients or self.clients, self.clients)


def make_plans(variants: Sequence[Variant], request: Request) -> list[Plan]:
    """One plan for each variant; data that several share is read once."""
    request.check()
    known: dict[str, Data] = {}
    plans = []
    for variant in variants:
        name = variant.experiment.algorithm["name"]
        if not find_algorithm(name).federates:
            raise InputError(f"algorithm.name: {name!r} is not allowed here: it has no rounds, and nothing travels")
        settings = variant.experiment.data
        key = settings.model_copy(update={"partition": type(settings.partition)()}).model_dump_json()
        if key not in known:
            known[key] = read_data(settings)
        plans.append(make_plan(variant, request, known[key]))
    return plans


def make_plan(variant: Variant, request: Request, data: Data) -> Plan:
    """The variant with the stated numbers of clients, clients per round and rounds."""
    changes = {"data.partition.clients": request.clients, "rounds": request.rounds}
    experiment = variant.experiment.override({key: value for key, value in changes.items() if value is not None})
    experiment = fill_defaults(experiment, data.dataset)
    sizes, assumptions = _sizes(experiment, request, data)
    if request.per_round is not None:
        if request.per_round > len(sizes):
            raise InputError(f"--per-round: {request.per_round} is not allowed: there are {len(sizes)} clients")
        experiment = experiment.override({"server.fraction": request.per_round / len(sizes)})
    if not data.is_real:
        name = experiment.data.name
        where = Path(experiment.data.root) / name
        assumptions = (
            f"the files of {name} are not in {where}: what is measured is measured on random images of the same shape",
            *assumptions,
        )
    return Plan(variant.label, experiment, data, sizes, assumptions)


def read_data(settings: DataSettings) -> Data:
    """The data if its files are there; else random images of a named dataset's shape. Nothing is downloaded."""
    spec = SPECS.get(settings.name)
    if spec is not None:
        found = DatasetFiles.remembered(spec, Path(settings.root).expanduser()).results()
        if any(result.status == "missing" for result in found):
            dataset = presented(_stand_in(spec, settings), settings)
            return Data(dataset, spec.train_size, max(1, round(settings.part * spec.test_size)), is_real=False)
    dataset = load_dataset(settings.model_copy(update={"download": False}))
    return Data(dataset, len(dataset.train), len(dataset.test), is_real=True)


def _stand_in(spec: DatasetSpec, settings: DataSettings) -> Dataset:
    generator = generator_for(0, "estimate", spec.name)
    shape = stored_shape(spec, settings.image_size)
    inputs = torch.randint(256, (STAND_IN, *shape), generator=generator, dtype=torch.uint8)
    split = Split(inputs, torch.randint(spec.classes, (STAND_IN,), generator=generator))
    return Dataset(spec.name, split, split, spec.classes, spec.mean, spec.std, spec.augmentation, spec.channels)


def _sizes(experiment: Experiment, request: Request, data: Data) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """How many samples every client has, and what was assumed about it."""
    settings = experiment.data.partition
    clients = settings.clients
    if request.examples is not None:
        if clients is None:
            raise InputError(f"--examples: needs --clients with the partition {settings.kind!r}")
        sizes = np.full(clients, request.examples, dtype=np.int64)
        return sizes, (f"every one of the {clients:,} clients has {request.examples:,} samples, as stated",)
    if clients is not None and clients > data.train_size:
        raise InputError(
            f"data.partition.clients: {clients} is not allowed: {experiment.data.name} has {data.train_size} samples; "
            "say with --examples how many each client has of its own"
        )
    if data.is_real:
        sizes = np.array([len(indices) for indices in partition_of(experiment, data.dataset)])
        return sizes, (f"clients have the sizes of the experiment's own partition ({settings.kind}): {_range(sizes)}",)
    if settings.kind in ("file", "own"):
        unlabelled = np.zeros(data.train_size, dtype=np.int64)
        partition = make_partition(settings, unlabelled, None, numpy_generator_for(experiment.seed, "partition"))
        sizes = np.array([len(indices) for indices in partition])
        return sizes, (f"clients have the sizes that {settings.file} gives them: {_range(sizes)}",)
    assert clients is not None
    smaller, larger = divmod(data.train_size, clients)
    sizes = np.full(clients, smaller, dtype=np.int64)
    sizes[:larger] += 1
    sizes = np.maximum(1, np.rint(experiment.data.part * sizes)).astype(np.int64)
    return sizes, (f"clients are taken to be of equal size, {_range(sizes)}: without labels, nothing can be dealt out",)


def _range(sizes: NDArray[np.int64]) -> str:
    if sizes.min() == sizes.max():
        return f"{sizes[0]:,} samples each"
    return f"{sizes.min():,} to {sizes.max():,} samples, {sizes.mean():,.0f} on average"


def calibration_split(split: Split, count: int) -> Split:
    """A split of exactly `count` samples: the first ones, over and over if there are too few."""
    chosen = torch.arange(count) % len(split)
    return replace(split, inputs=split.inputs[chosen], labels=split.labels[chosen], clients=None)
