"""train_client(): the only batch loop."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.task import Task
from fedsol.config.optimizer import optimizer_arguments, optimizer_class
from fedsol.config.tables import ClientSettings
from fedsol.core.messages import Job, State, Update
from fedsol.core.randomness import generator_for, key_for, seeded_torch
from fedsol.core.weights import Weights, clone, on_device, pick
from fedsol.data.batches import batches, in_groups
from fedsol.data.types import Dataset
from fedsol.errors import InputError
from fedsol.models.split import SplitModel


@dataclass(frozen=True)
class ClientData:
    """A client's training samples: indices into a dataset's training split."""

    dataset: Dataset
    indices: Tensor


@dataclass(frozen=True)
class LocalTraining:
    """How one client trains in one round; the same for all clients."""

    settings: ClientSettings
    seed: int
    lr: float
    device: torch.device
    lr_decay: float = 1.0
    """Factor on the learning rate after each epoch."""


AfterEpoch = Callable[[int, Weights], None]
"""Sees the number of a finished epoch and the weights after it, which go on changing."""


def train_client(
    job: Job,
    algorithm: Algorithm,
    model: SplitModel,
    data: ClientData,
    training: LocalTraining,
    after_epoch: AfterEpoch = lambda _epoch, _weights: None,
) -> Update:
    """Trains the job's weights on the client's data with the algorithm's gradient; touches none of its inputs."""
    task = make_task(model, on_device(job.weights, training.device), training.lr, training.settings.momentum)
    local = clone(task.anchor)
    model.train(True)
    with seeded_torch(key_for(training.seed, "torch", job.round, job.client)):
        state = algorithm.begin(task, on_device(job.broadcast, training.device), on_device(job.state, training.device))
        loss, steps = _run_batches(job, algorithm, task, local, state, data, training, after_epoch)
        new_state, payload = algorithm.finish(task, local, steps, state)
    return Update(
        client=job.client,
        weights=on_device({**local, **task.buffers}, torch.device("cpu")),
        examples=len(data.indices),
        steps=steps,
        state=on_device(new_state, torch.device("cpu")),
        payload=on_device(payload, torch.device("cpu")),
        metrics={"train_loss": loss},
    )


def make_task(model: SplitModel, weights: Weights, lr: float, momentum: float) -> Task:
    """The task of a client that received these weights."""
    buffers = pick(weights, model.buffers)
    return Task(model, pick(weights, model.names), buffers, clone(buffers), lr, momentum)


def frozen_names(algorithm: Algorithm, settings: ClientSettings, model: SplitModel) -> tuple[str, ...]:
    """Parameters that local training leaves alone: the classifier's, if the method or `client.trains` says so."""
    if "body" not in (algorithm.trains, settings.trains):
        return ()
    if not model.body_names:
        raise InputError("client.trains: 'body' is not allowed: the model has no weights but those of its classifier")
    return model.head_names


def _run_batches(
    job: Job,
    algorithm: Algorithm,
    task: Task,
    local: Weights,
    state: State,
    data: ClientData,
    training: LocalTraining,
    after_epoch: AfterEpoch,
) -> tuple[float, int]:
    """Steps through all epochs, changing `local` in place; returns the mean loss and the number of steps."""
    settings = training.settings
    frozen = frozen_names(algorithm, settings, task.model)
    trained = {name: tensor for name, tensor in local.items() if name not in frozen}
    optimizer = make_optimizer(settings, list(trained.values()), algorithm.learning_rate(training.lr))
    generator = generator_for(training.seed, "client", job.round, job.client)
    total = torch.zeros((), device=training.device)
    per_step = settings.batch_size * algorithm.batches_per_step
    last_step = max(1, round(job.work * settings.epochs * -(-len(data.indices) // per_step)))
    steps = 0
    for epoch in range(1, settings.epochs + 1):
        stream = batches(data.dataset, data.indices, settings.batch_size, 1, generator, training.device)
        for batch in in_groups(stream, algorithm.batches_per_step):
            if steps == last_step:
                break
            gradients, loss = algorithm.gradient(task, local, batch, state)
            if gradients.keys() != local.keys():
                raise _wrong_names(algorithm, gradients, local)
            give_gradients(trained, gradients)
            if settings.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(list(trained.values()), settings.clip_norm)
            optimizer.step()
            total += loss
            steps += 1
        after_epoch(epoch, {**local, **task.buffers})
        for group in optimizer.param_groups:
            group["lr"] *= training.lr_decay
        if steps == last_step:
            break
    for tensor in local.values():
        tensor.grad = None
    return float(total) / max(steps, 1), steps


def _wrong_names(algorithm: Algorithm, gradients: Weights, local: Weights) -> InputError:
    missing, unknown = sorted(local.keys() - gradients.keys()), sorted(gradients.keys() - local.keys())
    return InputError(
        f"algorithm.name: the gradient of {type(algorithm).__name__} must have the names of the weights; "
        f"missing {missing}, unknown {unknown}"
    )


def give_gradients(weights: Weights, gradients: Weights) -> None:
    """Sets `grad` of every weight, in the memory layout of the weight itself.

    A fused optimiser walks through both side by side, whatever their strides; and the gradient of a convolution with
    channels last has other strides than its weight. (`backward()` sees to that by itself, `torch.autograd.grad` not.)
    """
    for name, weight in weights.items():
        gradient = gradients[name]
        if gradient.shape == weight.shape and gradient.stride() != weight.stride():
            gradient = torch.empty_like(weight).copy_(gradient)
        weight.grad = gradient


def make_optimizer(settings: ClientSettings, parameters: list[Tensor], lr: float) -> torch.optim.Optimizer:
    """The local optimiser, fresh for every client and round."""
    return optimizer_class(settings.optimizer)(parameters, **optimizer_arguments(settings, lr))
