"""Plan: an experiment with every number known, including the samples of every client."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsol.algorithms import make_algorithm
from fedsol.config.experiment import Experiment
from fedsol.config.tables import PRIVATE
from fedsol.core.memory import require_memory
from fedsol.core.paths import user_path
from fedsol.core.randomness import generator_for
from fedsol.data.catalog import SPECS, load_dataset, stored_shape, with_image_settings
from fedsol.data.files import DatasetFiles
from fedsol.data.types import Dataset, Split, tensors_of
from fedsol.engines import available_cores
from fedsol.errors import InputError
from fedsol.federation.federation import fill_defaults, partition_of
from fedsol.federation.local_training import epochs_of
from fedsol.federation.sampling import own_parts, sample_size, training_size, trains_alone
from fedsol.studies.variants import Variant


@dataclass(frozen=True)
class Plan:
    """An experiment with every number known."""

    label: str
    experiment: Experiment
    dataset: Dataset
    is_real: bool  # else random samples of the dataset's shape
    sizes: NDArray[np.int64]  # samples that every client trains on
    set_aside: int  # samples besides the test set that a global model is tested on
    per_round: int  # clients in a round
    assumptions: tuple[str, ...]

    @property
    def clients(self) -> int:
        return len(self.sizes)

    @property
    def rounds(self) -> int:
        assert self.experiment.rounds is not None
        return self.experiment.rounds

    @cached_property
    def samples_per_round(self) -> NDArray[np.float64]:
        """How many samples every client trains on in a round, each counted as often as it is used."""
        client, algorithm = self.experiment.client, make_algorithm(self.experiment.algorithm)
        sizes, place = np.unique(self.sizes, return_inverse=True)
        return np.array([size * epochs_of(size, client, algorithm) for size in sizes.tolist()], dtype=np.float64)[place]

    @property
    def workers(self) -> int:
        """Return how many clients this machine trains at the same time."""
        engine = self.experiment.engine
        return 1 if engine.kind == "local" else min(engine.workers or available_cores(), self.per_round)

    @property
    def evaluations(self) -> int:
        """Return the number of rounds after which the global model is evaluated."""
        server = self.experiment.server
        before = max(0, self.rounds - server.evaluate_last)
        return before // server.evaluate_every + self.rounds - before


def make_plans(variants: Sequence[Variant], per_round: int | None = None, examples: int | None = None) -> list[Plan]:
    """Return one plan per variant; `per_round` clients and `examples` per client override the experiment.

    Data that several variants share is read once.
    """
    known: dict[str, tuple[Dataset, bool]] = {}
    plans = []
    for variant in variants:
        name, settings = variant.experiment.algorithm["name"], variant.experiment.data
        if trains_alone(variant.experiment):
            raise InputError(f"algorithm.name: {name!r} cannot be estimated: it has no rounds and sends nothing")
        key = settings.model_copy(update={"partition": type(settings.partition)()}).model_dump_json()
        key += variant.experiment.task.kind
        dataset, is_real = known[key] = known.get(key) or read_data(variant.experiment, examples)
        experiment = fill_defaults(variant.experiment, dataset)
        sizes, set_aside, assumption = _sizes(experiment, dataset, examples)
        if per_round is not None:
            if per_round > len(sizes):
                raise InputError(f"--per-round: must be at most {len(sizes)}, the number of clients (got {per_round})")
            experiment = experiment.override({"server.fraction": per_round / len(sizes)})
        absent = "only the nodes have it" if settings.name == PRIVATE else f"not in {settings.root}"
        random = f"{settings.name}: {absent}; random samples of its shape stand in for it"
        assumptions = (assumption,) if is_real else (random, assumption)
        sampled = sample_size(experiment, len(sizes))
        plans.append(Plan(variant.label, experiment, dataset, is_real, sizes, set_aside, sampled, assumptions))
    return plans


def read_data(experiment: Experiment, examples: int | None = None) -> tuple[Dataset, bool]:
    """Return the data if its files exist, else random samples, and whether it is real; without downloading."""
    settings, kind = experiment.data, experiment.task.kind
    spec = SPECS.get(settings.name)
    if spec is not None:
        found = DatasetFiles.remembered(spec, user_path(settings.root, "data.root")).results()
        if any(result.status == "missing" for result in found):
            shape, test_size = stored_shape(spec, settings.image_size), max(1, round(settings.part * spec.test_size))
            train, test = (_random_split(shape, size, spec.classes) for size in (spec.train_size, test_size))
            statistics = (spec.classes, spec.mean, spec.std, spec.augmentation, spec.channels)
            return with_image_settings(Dataset(spec.name, train, test, *statistics), settings), False
    dataset = load_dataset(settings.model_copy(update={"download": False}), kind)
    if settings.name != PRIVATE:
        return dataset, True
    if examples is None:
        raise InputError("--examples: is missing; only the nodes know how much private data they have")
    if settings.private.inputs == "table" or kind != "classification":
        return replace(dataset, train=_zeros(dataset.train, examples)), False
    train = _random_split(tuple(settings.private.shape), examples, dataset.classes)
    pixels = train.inputs
    assert isinstance(pixels, Tensor)
    inputs = pixels if settings.private.inputs == "images" else pixels / 256
    return replace(dataset, train=replace(train, inputs=inputs)), False


def _zeros(empty: Split, size: int) -> Split:
    """Return this many samples of zeros, in the form of an empty split."""
    tensors = tensors_of(empty.inputs)
    require_memory(
        size * sum(math.prod(tensor.shape[1:]) * tensor.itemsize for tensor in tensors.values()),
        f"--examples: {size:,} samples",
    )
    named = {name: tensor.new_zeros(size, *tensor.shape[1:]) for name, tensor in tensors.items()}
    single = named.get("")
    return Split(named if single is None else single, empty.labels.new_zeros(size, *empty.labels.shape[1:]))


def _random_split(shape: tuple[int, ...], size: int, classes: int) -> Split:
    """Return images that are overlapping windows of one row of random pixels: any number of them in little memory."""
    pixels = math.prod(shape)
    require_memory(9 * size + pixels, f"--examples: random samples of shape {shape}, {size:,} of them")
    generator = generator_for(0, "estimate")
    row = torch.randint(256, (size + pixels - 1,), generator=generator, dtype=torch.uint8)
    return Split(row.unfold(0, pixels, 1).view(size, *shape), torch.arange(size) % classes)


def _sizes(experiment: Experiment, dataset: Dataset, examples: int | None) -> tuple[NDArray[np.int64], int, str]:
    """Return the samples that every client trains on, those tested on instead, and the assumption behind both."""
    settings, samples = experiment.data.partition, len(dataset.train)
    clients = settings.clients
    splits = settings.held_out or experiment.data.validation
    has, have = ("trains on", "train on a part of") if splits else ("has", "have")
    if examples is not None:
        if clients is None:
            raise InputError(f"--examples: needs --clients with the partition {settings.kind!r}")
        require_memory(8 * clients, f"--clients: a list of {clients:,} clients")
        size = training_size(experiment, examples)
        aside = _set_aside(experiment, np.full(clients, examples - size))
        return np.full(clients, size), aside, f"each of the {clients:,} clients {has} {size:,} samples"
    if clients is not None and clients > samples:
        raise InputError(
            f"data.partition.clients: must be at most {samples}, the samples of {experiment.data.name} "
            f"(got {clients}); set the samples per client with --examples"
        )
    samples_of = [len(indices) for indices in partition_of(experiment, dataset)]
    sizes = np.array([training_size(experiment, count) for count in samples_of])
    aside = _set_aside(experiment, np.array(samples_of) - sizes)
    low, high = sizes.min(), sizes.max()
    span = f"{low:,} each" if low == high else f"{low:,} to {high:,}, {sizes.mean():,.0f} on average"
    return sizes, aside, f"clients {have} the samples of the experiment's partition ({settings.kind}): {span}"


def _set_aside(experiment: Experiment, counts: NDArray[np.int64]) -> int:
    """Return how many of the samples that clients set aside a global model is tested on, on average."""
    testers = min(experiment.server.evaluate_clients or len(counts), len(counts))
    return round(float(counts.sum()) * testers / len(counts)) if own_parts(experiment) else int(counts.sum())
