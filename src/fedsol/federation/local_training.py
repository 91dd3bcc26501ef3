"""train_client(): train one client; the only batch loop."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor

from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.task import Task, Where
from fedsol.config.tables import ClientSettings
from fedsol.core.messages import Job, State, Update
from fedsol.core.randomness import generator_for, key_for, seeded_torch
from fedsol.core.weights import Weights, clone, on_device, pick
from fedsol.data.batches import Batch, batches, in_groups
from fedsol.data.types import Dataset
from fedsol.errors import InputError
from fedsol.federation.optimizer import make_optimizer
from fedsol.federation.private_steps import PrivateSteps, random_batches
from fedsol.models.split import SplitModel
from fedsol.objectives.base import CLASSES, Objective


@dataclass(frozen=True)
class ClientData:
    """A client's training samples, indices into a dataset's training split, and what is learned from them."""

    dataset: Dataset
    indices: Tensor
    objective: Objective = CLASSES


@dataclass(frozen=True)
class LocalTraining:
    """How clients train in one round; the same for all of them."""

    settings: ClientSettings
    seed: int
    lr: float
    device: torch.device
    lr_decay: float = 1.0
    """Factor applied to the learning rate after each epoch."""
    private: PrivateSteps | None = None
    """With `privacy.level = "example"`."""


AfterEpoch = Callable[[int, Weights], None]
"""Receives the number of a finished epoch and the weights after it, which later epochs change."""


def train_client(
    job: Job,
    algorithm: Algorithm,
    model: SplitModel,
    data: ClientData,
    training: LocalTraining,
    after_epoch: AfterEpoch = lambda _epoch, _weights: None,
) -> Update:
    """Train the job's weights on the client's data with the algorithm's gradient; change none of the inputs."""
    weights = on_device(job.weights, training.device)
    task = make_task(model, weights, training.lr, training.settings.momentum, data.objective)
    task = replace(task, labels=lambda: data.dataset.train.labels[data.indices])
    model.train(True)
    with seeded_torch(key_for(training.seed, "torch", job.round, job.client)):
        state = algorithm.begin(task, on_device(job.broadcast, training.device), on_device(job.state, training.device))
        local = clone(algorithm.start(task, state))
        loop = _BatchLoop(job, algorithm, task, data, training)
        loss, steps, state = loop.run(local, state, after_epoch)
        new_state, payload = algorithm.finish(task, local, steps, state)
        sent = algorithm.upload(task, local, state)
    return Update(
        client=job.client,
        weights=on_device({**sent, **task.buffers}, torch.device("cpu")),
        examples=len(data.indices),
        steps=steps,
        state=on_device(new_state, torch.device("cpu")),
        payload=on_device(payload, torch.device("cpu")),
        metrics={"train_loss": loss},
    )


def make_task(model: SplitModel, weights: Weights, lr: float, momentum: float, objective: Objective) -> Task:
    """Return the task of a client that received these weights."""
    buffers = pick(weights, model.buffers)
    return Task(model, pick(weights, model.names), buffers, clone(buffers), lr, momentum, objective)


def steps_of(examples: int, work: float, settings: ClientSettings, algorithm: Algorithm) -> int:
    """Return the number of steps of a job on this many examples, at least one; `work` is the share that it does."""
    steps = settings.steps or settings.epochs * _steps_per_epoch(examples, settings, algorithm)
    return max(1, round(work * steps))


def epochs_of(examples: int, settings: ClientSettings, algorithm: Algorithm) -> float:
    """Return how often a round's steps go through this many examples: `client.epochs`, unless `client.steps` is set."""
    if settings.steps is None:
        return settings.epochs
    return settings.steps / max(1, _steps_per_epoch(examples, settings, algorithm))


def _steps_per_epoch(examples: int, settings: ClientSettings, algorithm: Algorithm) -> int:
    return -(-examples // (settings.batch_size * algorithm.batches_per_step))


def untrained_names(algorithm: Algorithm, settings: ClientSettings, model: SplitModel) -> tuple[str, ...]:
    """Return the parameters that clients do not train: the classifier's, if the method or `client.trains` says so."""
    if "body" not in (algorithm.trains, settings.trains):
        return ()
    if not model.body_names:
        raise InputError("client.trains: must be 'all' for a model with no weights besides its classifier (got 'body')")
    return model.head_names


@dataclass(frozen=True)
class _BatchLoop:
    """All steps of one job."""

    job: Job
    algorithm: Algorithm
    task: Task
    data: ClientData
    training: LocalTraining

    def run(self, local: Weights, state: State, after_epoch: AfterEpoch) -> tuple[float, int, State]:
        """Step through all epochs, changing `local` in place; return mean loss, number of steps, and last state."""
        settings, algorithm = self.training.settings, self.algorithm
        untrained = untrained_names(algorithm, settings, self.task.model)
        part: Where | None = None
        lr = algorithm.learning_rate(self.training.lr)
        total = torch.zeros((), device=self.training.device)
        steps, last_step = 0, steps_of(len(self.data.indices), self.job.work, settings, algorithm)
        epochs = math.ceil(epochs_of(len(self.data.indices), settings, algorithm))
        stream, per_epoch = self._batches(epochs), -(-len(self.data.indices) // settings.batch_size)
        for epoch in range(1, epochs + 1):
            for batch in in_groups(islice(stream, per_epoch), algorithm.batches_per_step):
                if steps == last_step:
                    break
                if part != (part := algorithm.part(steps, last_step)):
                    trained = {name: local[name] for name in self.task.names(part) if name not in untrained}
                    optimizer = make_optimizer(settings, trained, lr)
                gradients, loss, state = self._step(local, batch, state)
                if gradients.keys() != local.keys():
                    raise _wrong_names(algorithm, gradients, local)
                optimizer.step(gradients)
                total += loss
                steps += 1
            after_epoch(epoch, {**local, **self.task.buffers})
            optimizer.decay(self.training.lr_decay)
            lr *= self.training.lr_decay
            if steps == last_step:
                break
        return float(total) / max(steps, 1), steps, state

    def _step(self, local: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor, State]:
        """Return the gradient to apply, the local loss and the new state."""
        if self.training.private:
            return (*self.training.private.gradient(self.algorithm, self.task, local, batch, state), state)
        return self.algorithm.step(self.task, local, batch, state)

    def _batches(self, epochs: int) -> Iterator[Batch]:
        """Return the batches of all epochs."""
        data, training, job = self.data, self.training, self.job
        generator = generator_for(training.seed, "client", job.round, job.client)
        size = training.settings.batch_size
        if training.private:
            return random_batches(data.dataset, data.indices, size, training.private.choose, generator, training.device)
        return batches(data.dataset, data.indices, size, epochs, generator, training.device)


def _wrong_names(algorithm: Algorithm, gradients: Weights, local: Weights) -> InputError:
    missing, unknown = sorted(local.keys() - gradients.keys()), sorted(gradients.keys() - local.keys())
    return InputError(
        f"algorithm.name: the gradient of {type(algorithm).__name__} must have the names of the weights; "
        f"missing {missing}, unknown {unknown}"
    )
