"""Federation: the data, partition, model and algorithm of an experiment, the same in every process."""

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.task import Task
from fedsol.config.experiment import Experiment
from fedsol.config.tables import IN_MEMORY, PRIVATE
from fedsol.config.task import TaskKind
from fedsol.core.memory import require_memory
from fedsol.core.messages import Job, ServerState, State, Update
from fedsol.core.randomness import key_for, numpy_generator_for
from fedsol.core.weights import Weights, norm, on_device, pick
from fedsol.data.batches import evaluation_batches
from fedsol.data.catalog import SPECS, load_dataset, with_image_settings
from fedsol.data.partition import make_partition
from fedsol.data.private import load_private
from fedsol.data.shift import shifted
from fedsol.data.types import Dataset, Inputs, Split, tensors_of
from fedsol.errors import InputError
from fedsol.federation.evaluation import Tally, evaluate, values_of
from fedsol.federation.exchange import Exchange, check_exchange, methods_own
from fedsol.federation.faults import LABELS, Fault, plan, with_flipped_labels
from fedsol.federation.local_training import (
    ClientData,
    LocalTraining,
    epochs_of,
    make_task,
    steps_of,
    train_client,
    untrained_names,
)
from fedsol.federation.optimizer import check_optimizer, check_optimizer_on
from fedsol.federation.private_steps import PrivateSteps, simulated_steps
from fedsol.federation.sampling import ClientSamples, OwnPart, central_validation, split_samples, trains_alone
from fedsol.models import ModelShape
from fedsol.models.build import autocast_of, build_split_model
from fedsol.models.split import SplitModel
from fedsol.objectives import make_objective
from fedsol.objectives.base import CLASSES, Objective
from fedsol.objectives.metrics import COUNTED, Scorer, Scores, Value

log = logging.getLogger(__name__)

OWN_DATA_DEFAULTS = {"clients": 10, "fraction": 1.0, "rounds": 50}


@dataclass(frozen=True)
class Federation:
    """Everything that training uses and that no round changes."""

    experiment: Experiment
    """With every default filled in."""
    dataset: Dataset
    partition: list[Tensor]
    """Indices into the training split, one tensor per client."""
    model: SplitModel
    algorithm: Algorithm
    device: torch.device
    objective: Objective = CLASSES

    @property
    def clients(self) -> int:
        """The total number of clients."""
        return len(self.partition)

    def initial_weights(self) -> Weights:
        """Return the global weights before the first round."""
        return self.model.initial_weights()

    def initial_server(self) -> ServerState:
        """Return the server's state before the first round."""
        weights, names = self.initial_weights(), self.model.names
        return ServerState(weights, names, self.clients, self.algorithm.init_server(pick(weights, names)))

    def sending(self, server: ServerState) -> ServerState:
        """Return the server with the weights that it sends in a round; untrained ones are always those evaluated."""
        weights = {**self.algorithm.sent(server), **pick(server.weights, self.untrained)}
        return self.exchange.server(replace(server, weights=weights))

    @property
    def untrained(self) -> tuple[str, ...]:
        """Names of the parameters that no client trains, though the model would."""
        return untrained_names(self.algorithm, self.experiment.client, self.model)

    @cached_property
    def exchange(self) -> Exchange:
        """What travels of the model's weights, and what stays with each client."""
        rules = {"server.exchange": self.experiment.server.exchange, "algorithm.exchange": self.algorithm.exchange}
        return Exchange.of(self.model, rules)

    def initial_state(self) -> State:
        """Return a client's own state before its first job."""
        initial = self.initial_weights()
        own = self.algorithm.init_client(pick(initial, self.model.names), pick(initial, self.model.buffers))
        return self.exchange.state(own, self.exchange.initial)

    def samples(self, client: int) -> ClientSamples:
        """Return what a client trains on, validates with and holds out: indices into the training split."""
        found = split_samples(self.experiment, self.partition[client], client)
        if not len(self.central_validation):
            return found
        return found._replace(training=found.training[~torch.isin(found.training, self.central_validation)])

    def training_samples(self, client: int) -> Tensor:
        """Return what a client trains on: indices into the training split."""
        return self.samples(client).training

    def held_out_samples(self, client: int) -> Tensor:
        """Return a client's hold-out set: indices into the training split that it never trains on."""
        return self.samples(client).held_out

    @cached_property
    def central_validation(self) -> Tensor:
        """The server's validation set, if it has one: indices into the training split that no client trains on."""
        return central_validation(self.experiment, self.partition)

    def train(self, job: Job, private: Callable[[Experiment, Job], PrivateSteps | None] = simulated_steps) -> Update:
        """Run one client's job; `private` says where the noise of its steps comes from, if they have any."""
        experiment, dataset = self.experiment, self.dataset
        lr = experiment.learning_rate(job.round)
        training = LocalTraining(experiment.client, experiment.seed, lr, self.device, private=private(experiment, job))
        if experiment.faults.corruption == LABELS and self.faults([job.client], job.round)[job.client].corrupted:
            dataset = with_flipped_labels(dataset)
        data = ClientData(dataset, self.training_samples(job.client), self.objective)
        complete = replace(job, weights=self.exchange.complete(job.weights, job.state), state=methods_own(job.state))
        return self.exchange.update(train_client(complete, self.algorithm, self.model, data, training))

    def faults(self, clients: Iterable[int], round_number: int) -> dict[int, Fault]:
        """Return what goes wrong with clients in a round."""
        return plan(self.experiment, clients, round_number, self.clients)

    def steps_of(self, examples: int, work: float) -> int:
        """Return how many steps a client with this many examples takes in a round."""
        return steps_of(examples, work, self.experiment.client, self.algorithm)

    def epochs_of(self, examples: int) -> float:
        """Return how often a client with this many examples goes through them in a round."""
        return epochs_of(examples, self.experiment.client, self.algorithm)

    def task_for(self, weights: Weights, round_number: int = 1) -> Task:
        """Return the task of a client that receives these weights in a round."""
        experiment = self.experiment
        received = on_device(weights, self.device)
        lr, momentum = experiment.learning_rate(round_number), experiment.client.momentum
        return make_task(self.model, received, lr, momentum, self.objective)

    def evaluate(self, weights: Weights, start: int = 0, stop: int | None = None) -> Tally:
        """Count the answers of a model on the test set, or on a part of it."""
        return self.evaluate_on(weights, self.dataset.test.select(slice(start, stop)))

    def evaluate_validation(self, weights: Weights, start: int = 0, stop: int | None = None) -> Tally:
        """Count the answers of a model on the server's validation set, or on a part of it."""
        return self.evaluate_on(weights, self.dataset.train, self.central_validation[start:stop])

    def evaluate_client(self, weights: Weights, client: int, part: OwnPart = "held_out") -> Tally:
        """Count the answers of a complete model on a client's hold-out set or validation set."""
        tally = self.evaluate_on(weights, self.dataset.train, getattr(self.samples(client), part))
        if self.objective.primary.name in COUNTED or not sum(tally.examples):
            return replace(tally, scores=Scores())
        primary = self.metrics(tally)[self.objective.primary.key]
        assert not isinstance(primary, list)
        return replace(tally, scores=Scores(), primary=math.nan if primary is None else primary)

    def metrics(self, tally: Tally) -> dict[str, Value]:
        """Return the metrics of a test by key, the primary one first."""
        return values_of(tally, self.scorer)

    @cached_property
    def scorer(self) -> Scorer:
        """What computes the metrics of a test."""
        return Scorer(self.objective)

    def evaluate_on(self, weights: Weights, split: Split, indices: Tensor | None = None) -> Tally:
        """Count the answers of a model on a split, or on its samples at `indices`."""
        size = self.experiment.server.evaluate_batch
        batches = evaluation_batches(split, self.dataset, size, self.device, indices)
        return evaluate(self.model, on_device(weights, self.device), batches, self.scorer)


def build_federation(experiment: Experiment, data: object = None) -> Federation:
    """Load the data, split it among the clients and build the model, as the experiment says.

    `data` is the data itself, if it is in memory.
    """
    check_optimizer(experiment.client)
    if data is not None and experiment.data.name != IN_MEMORY:
        if "name" in experiment.data.model_fields_set:
            raise InputError(f"data.name: must not be set if the data is passed (got {experiment.data.name!r})")
        experiment = experiment.override({"data.name": IN_MEMORY})
    dataset = load_dataset(experiment.data, experiment.task.kind, data)
    experiment = fill_defaults(experiment, dataset)
    partition = partition_of(experiment, dataset)
    federation = assemble(experiment, shifted(dataset, partition, experiment.data.shift), partition)
    _warn_of_strength(federation.algorithm, federation.model)
    return federation


def node_federation(experiment: Experiment, source: str, client: int) -> Federation:
    """Build the federation as seen by a node that has its own data and not that of other clients."""
    if experiment.data.name != PRIVATE:
        name = experiment.data.name
        raise InputError(f"data: must not be set for this node: the experiment's data is {name!r} (got {source!r})")
    dataset = with_image_settings(load_private(source, experiment.data, experiment.task.kind), experiment.data)
    experiment = fill_defaults(experiment, dataset)
    partition = partition_of(experiment, dataset)
    if client >= len(partition):
        raise InputError(f"partition-id: must be less than {len(partition)}, the number of clients (got {client})")
    partition[client] = torch.arange(len(dataset.train))
    return assemble(experiment, dataset, partition)


def assemble(experiment: Experiment, dataset: Dataset, partition: list[Tensor]) -> Federation:
    """Return a federation on data that is already loaded and split among the clients."""
    _check_batch(experiment, dataset, partition)
    _check_central_validation(experiment, partition)
    device = choose_device(experiment.engine.device)
    objective = make_objective(experiment.task, dataset)
    model = build_split_model(
        experiment.model,
        model_shape(dataset, objective),
        key_for(experiment.seed, "model"),
        device,
        autocast_of(experiment.engine.precision),
    )
    algorithm = make_algorithm(experiment.algorithm)
    untrained = untrained_names(algorithm, experiment.client, model)  # refuses an unsuitable model before any work
    weights = model.initial_weights()
    check_optimizer_on(experiment.client, {name: weights[name] for name in model.names if name not in untrained})
    if algorithm.perturbation and algorithm.perturbation.where == "body" and not model.body_names:
        raise InputError("algorithm.perturb: 'body' is not allowed: the model has no weights but its classifier's")
    federation = Federation(experiment, dataset, partition, model, algorithm, device, objective)
    check_exchange(federation)
    _ = federation.scorer  # refuses an unsuitable metric before any work
    return federation


def try_own_code(federation: Federation) -> None:
    """Raise `InputError` if a loss or a metric of the user's own fails, before anything is written."""
    objective, data, model = federation.objective, federation.dataset, federation.model
    weights = federation.initial_weights()
    if objective.own_loss is not None:
        for batch in evaluation_batches(data.train, data, federation.experiment.client.batch_size, federation.device):
            outputs = model.outputs(on_device(weights, federation.device), batch.inputs)[1]
            objective.loss(outputs.detach().requires_grad_(), batch.labels)
            break
    if any(":" in measure.name for measure in objective.measures) and len(data.test):
        federation.metrics(federation.evaluate_on(weights, data.test))


def _warn_of_strength(algorithm: Algorithm, model: SplitModel) -> None:
    """Warn if a perturbation outweighs a head with one output, all of whose weights have Lambda 1 by columns."""
    how, head = algorithm.perturbation, pick(model.initial_weights(), model.head_names)
    if how is None or how.where != "head" or how.strength != "adaptive-column":
        return
    size = float(norm(head))
    if how.rho > size and all(tensor.shape[:1] == (1,) for tensor in head.values()):
        log.warning(
            "algorithm.rho: the model has one output, so 'adaptive-column' perturbs its head by all of rho = %g, more "
            "than the norm of its weights, %.2g; set a smaller algorithm.rho, or algorithm.strength to 'adaptive'",
            how.rho,
            size,
        )


def model_shape(dataset: Dataset, objective: Objective) -> ModelShape:
    """Return what a model for this data and task is sized for."""
    first = dataset.train if len(dataset.train) else dataset.test
    inputs = first.inputs
    is_real = isinstance(inputs, Tensor) and inputs.dtype != torch.int64
    examples = None if is_real else _examples(first, dataset)
    shape = tuple(inputs.shape[1:]) if isinstance(inputs, Tensor) and not is_real else dataset.input_shape
    if isinstance(examples, dict):
        shape = tuple(next(iter(examples.values())).shape[1:])
    return ModelShape(
        input_shape=dataset.input_shape,
        classes=objective.classes,
        categories=dataset.codes,
        vocabulary=None if is_real else dataset.vocabulary,
        output_shape=objective.output_shape(shape),
        examples=examples,
    )


def _examples(split: Split, dataset: Dataset) -> Inputs:
    """Return the first two inputs; zeros if there are none, as for a server of private data."""
    for batch in evaluation_batches(split, dataset, 2):
        return batch.inputs
    zeros = {name: tensor.new_zeros(2, *tensor.shape[1:]) for name, tensor in tensors_of(split.inputs).items()}
    single = zeros.get("")
    return zeros if single is None else single


def _check_batch(experiment: Experiment, dataset: Dataset, partition: list[Tensor]) -> None:
    """Raise `InputError` if one batch of padded images does not fit into memory."""
    if dataset.train.images is None:
        return
    channels, height, width = dataset.train.images.shape[1:]
    pad, largest = dataset.augmentation.pad, max(map(len, partition), default=0)
    count = min(experiment.client.batch_size, largest)
    padded = (height + 2 * pad) * (width + 2 * pad)
    require_memory(count * channels * padded, f"data.augmentation.pad: a batch of {count} images padded by {pad:,}")


def _check_central_validation(experiment: Experiment, partition: list[Tensor]) -> None:
    """Raise `InputError` if the server's validation set leaves a client nothing to train on."""
    central = central_validation(experiment, partition)
    for client, indices in enumerate(partition if len(central) else ()):
        if bool(torch.isin(split_samples(experiment, indices, client).training, central).all()):
            raise InputError(
                f"data.validation: {experiment.data.validation:g} of the training set leaves client {client}, which "
                f"has {len(indices)} samples, none to train on; use a smaller share, or data.validation_by = 'client'"
            )


def fill_defaults(experiment: Experiment, dataset: Dataset) -> Experiment:
    """Return the experiment with the dataset's number of clients, fraction, rounds and model where unset."""
    experiment = fill_sizes(experiment)
    if experiment.model.name is not None:
        return experiment
    return experiment.override({"model.name": default_model(dataset, experiment.task.kind)})


def fill_sizes(experiment: Experiment) -> Experiment:
    """Return the experiment with the number of clients, fraction and rounds that its data's name stands for."""
    spec = SPECS.get(experiment.data.name)
    clients, fraction, rounds = (spec.clients, spec.fraction, spec.rounds) if spec else OWN_DATA_DEFAULTS.values()
    partition = experiment.data.partition
    changes: dict[str, object] = {}
    if experiment.rounds is None:
        changes["rounds"] = 1 if trains_alone(experiment) else rounds
    if experiment.server.fraction is None:
        changes["server.fraction"] = fraction
    if partition.clients is None and partition.kind not in ("own", "file"):
        changes["data.partition.clients"] = clients
    return experiment.override(changes) if changes else experiment


def default_model(dataset: Dataset, kind: TaskKind) -> str:
    """Return `cnn` for images, `small` for tiny ones, `mlp` for vectors, and what the other data takes."""
    if kind == "segmentation":
        return "unet"
    if dataset.vocabulary is not None:
        return "text"
    if not isinstance(dataset.train.inputs, Tensor):
        return "tabular"
    if len(dataset.input_shape) != 3:
        return "mlp"
    return "cnn" if min(dataset.input_shape[1:]) >= 16 else "small"


def partition_of(experiment: Experiment, dataset: Dataset) -> list[Tensor]:
    """Return the clients' indices, which depend only on the seed, the labels and `[data.partition]`."""
    if experiment.data.name == PRIVATE:  # only the nodes know their samples
        clients = experiment.data.partition.clients or 0
        require_memory(8 * clients, f"data.partition.clients: a list of {clients:,} clients")
        return [torch.zeros(0, dtype=torch.int64)] * clients
    owners = dataset.train.clients
    indices = make_partition(
        experiment.data.partition,
        dataset.train.labels.numpy(),
        None if owners is None else owners.numpy(),
        numpy_generator_for(experiment.seed, "partition"),
    )
    return [torch.from_numpy(_share(client, experiment, number)) for number, client in enumerate(indices)]


def _share(indices: NDArray[np.int64], experiment: Experiment, client: int) -> NDArray[np.int64]:
    """Return the part of a client's samples that is used: `data.part` of them at random, at least one."""
    if experiment.data.part == 1:
        return indices
    rng = numpy_generator_for(experiment.seed, "part", client)
    return np.sort(rng.choice(indices, max(1, round(experiment.data.part * len(indices))), replace=False))


def choose_device(name: str) -> torch.device:
    """Return the torch device of `engine.device`, if this machine has it."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next((kind for kind in ("cuda", "mps") if available[kind]), "cpu")
    if not available[name.split(":")[0]]:
        found = ", ".join(kind for kind, there in available.items() if there)
        raise InputError(f"engine.device: must be a device of this machine: {found} (got {name!r})")
    if name.startswith("cuda:") and int(name[5:]) >= torch.cuda.device_count():
        raise InputError(
            f"engine.device: this machine has cuda:0 to cuda:{torch.cuda.device_count() - 1} (got {name!r})"
        )
    return torch.device(name)
