"""Plan: an experiment with the stated numbers, and how many samples every client has."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

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
from fedsol.federation.sampling import sample_size, trains_alone
from fedsol.studies.variants import Variant

STAND_IN = 1000
"""Random images that replace a split whose files are missing."""


@dataclass(frozen=True)
class Request:
    """The numbers that the command line states; None leaves the experiment's own."""

    clients: int | None = None
    per_round: int | None = None
    rounds: int | None = None
    examples: int | None = None
    """Samples of every client."""

    def __post_init__(self) -> None:
        for field, value in vars(self).items():
            if value is not None and value < 1:
                raise InputError(f"--{field.replace('_', '-')}: must be 1 or more (got {value})")


@dataclass(frozen=True)
class Data:
    """The dataset, or random images in its place, and its full size."""

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
    """An experiment whose every number is known."""

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
        """Number of clients that this machine trains at the same time."""
        engine = self.experiment.engine
        return 1 if engine.kind == "local" else min(engine.workers or available_cores(), self.per_round)

    @property
    def evaluations(self) -> int:
        """Number of rounds after which the global model is evaluated."""
        return sum(self.experiment.is_evaluated(round_number) for round_number in range(1, self.rounds + 1))

    @property
    def testers(self) -> int:
        """Number of clients that test the global model on their hold-out set."""
        if not self.experiment.data.partition.held_out:
            return 0
        return min(self.experiment.server.evaluate_clients or self.clients, self.clients)


def make_plans(variants: Sequence[Variant], request: Request) -> list[Plan]:
    """Return one plan per variant; data that several share is read once."""
    known: dict[str, Data] = {}
    plans = []
    for variant in variants:
        name = variant.experiment.algorithm["name"]
        if trains_alone(variant.experiment):
            raise InputError(f"algorithm.name: {name!r} cannot be estimated: it has no rounds and sends nothing")
        settings = variant.experiment.data
        key = settings.model_copy(update={"partition": type(settings.partition)()}).model_dump_json()
        if key not in known:
            known[key] = _read_data(settings)
        plans.append(_make_plan(variant, request, known[key]))
    return plans


def _make_plan(variant: Variant, request: Request, data: Data) -> Plan:
    changes = {"data.partition.clients": request.clients, "rounds": request.rounds}
    experiment = variant.experiment.override({key: value for key, value in changes.items() if value is not None})
    experiment = fill_defaults(experiment, data.dataset)
    sizes, assumption = _sizes(experiment, request, data)
    if request.per_round is not None:
        if request.per_round > len(sizes):
            raise InputError(
                f"--per-round: must be at most {len(sizes)}, the number of clients (got {request.per_round})"
            )
        experiment = experiment.override({"server.fraction": request.per_round / len(sizes)})
    missing = f"{experiment.data.name} is not in {experiment.data.root}: time is that of random images of its shape"
    return Plan(variant.label, experiment, data, sizes, (assumption,) if data.is_real else (missing, assumption))


def _read_data(settings: DataSettings) -> Data:
    """Read the data if its files exist, else make random images of its shape. Download nothing."""
    spec = SPECS.get(settings.name)
    if spec is not None:
        found = DatasetFiles.remembered(spec, Path(settings.root).expanduser()).results()
        if any(result.status == "missing" for result in found):
            dataset = presented(_random_images(spec, settings), settings)
            return Data(dataset, spec.train_size, max(1, round(settings.part * spec.test_size)), is_real=False)
    dataset = load_dataset(settings.model_copy(update={"download": False}))
    return Data(dataset, len(dataset.train), len(dataset.test), is_real=True)


def _random_images(spec: DatasetSpec, settings: DataSettings) -> Dataset:
    generator = generator_for(0, "estimate", spec.name)
    shape = stored_shape(spec, settings.image_size)
    inputs = torch.randint(256, (STAND_IN, *shape), generator=generator, dtype=torch.uint8)
    split = Split(inputs, torch.randint(spec.classes, (STAND_IN,), generator=generator))
    return Dataset(spec.name, split, split, spec.classes, spec.mean, spec.std, spec.augmentation, spec.channels)


def _sizes(experiment: Experiment, request: Request, data: Data) -> tuple[NDArray[np.int64], str]:
    """Return the number of samples of every client, and the assumption behind it."""
    settings = experiment.data.partition
    clients = settings.clients
    if request.examples is not None:
        if clients is None:
            raise InputError(f"--examples: needs --clients with the partition {settings.kind!r}")
        return np.full(clients, request.examples), f"each of the {clients:,} clients has {request.examples:,} samples"
    if clients is not None and clients > data.train_size:
        raise InputError(
            f"data.partition.clients: must be at most {data.train_size}, the samples of {experiment.data.name} "
            f"(got {clients}); state with --examples how many each client has"
        )
    if data.is_real:
        sizes = np.array([len(indices) for indices in partition_of(experiment, data.dataset)])
        return sizes, f"clients have the sizes of the experiment's partition ({settings.kind}): {_range(sizes)}"
    if settings.kind in ("file", "own"):
        labels = np.zeros(data.train_size, dtype=np.int64)
        partition = make_partition(settings, labels, None, numpy_generator_for(experiment.seed, "partition"))
        sizes = np.array([len(indices) for indices in partition])
        return sizes, f"clients have the sizes given in {settings.file}: {_range(sizes)}"
    assert clients is not None
    sizes = data.train_size // clients + (np.arange(clients) < data.train_size % clients)
    sizes = np.maximum(1, np.rint(experiment.data.part * sizes)).astype(np.int64)
    return sizes, f"clients have equal sizes, {_range(sizes)}: there are no labels to split by"


def _range(sizes: NDArray[np.int64]) -> str:
    if sizes.min() == sizes.max():
        return f"{sizes[0]:,} samples each"
    return f"{sizes.min():,} to {sizes.max():,} samples, {sizes.mean():,.0f} on average"
