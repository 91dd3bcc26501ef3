"""DP-SGD: local steps whose gradients are clipped sample by sample and noised, for `[privacy] level = "example"`.

Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, algorithm 1. Every batch is a fresh random part of
the client's samples, all of one size: that is what the account counts.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.proximal_base import ProximalAlgorithm
from fedsol.algorithms.task import Task
from fedsol.config.experiment import Experiment
from fedsol.core.messages import Job, State
from fedsol.core.weights import Weights, add
from fedsol.data.batches import Batch, batches
from fedsol.data.types import Dataset, Inputs, pick
from fedsol.errors import InputError
from fedsol.privacy.accounting import Mechanism
from fedsol.privacy.noise import Draw, from_system, secret_sample, simulated

Choose = Callable[[int, int, torch.Generator], Tensor]
"""Returns which samples a batch has: so many of so many. A simulation uses the generator."""


@dataclass(frozen=True)
class PrivateSteps:
    """How the gradient of a batch is clipped and noised."""

    clip_norm: float
    """Of the gradient of one sample."""
    noise_multiplier: float
    draw: Draw
    choose: Choose

    def gradient(
        self, algorithm: Algorithm, task: Task, weights: Weights, batch: Batch, state: State
    ) -> tuple[Weights, Tensor]:
        """Return the noised mean of clipped gradients, with the method's proximal term, and the mean loss."""
        check_statistics(task.buffers)
        found, loss = sample_gradients(task, weights, batch)
        std = self.noise_multiplier * self.clip_norm
        gradient = {
            name: (total + std * self.draw(total.shape).to(total)) / len(batch)
            for name, total in clipped_total(found, self.clip_norm).items()
        }
        proximal = algorithm.proximal_loss(task, state) if isinstance(algorithm, ProximalAlgorithm) else None
        if proximal is not None and isinstance(algorithm, ProximalAlgorithm):
            gradient = add(gradient, proximal.gradient(task.at(weights, batch), "all"), algorithm.coefficient)
        return gradient, loss


def simulated_steps(experiment: Experiment, job: Job) -> PrivateSteps | None:
    """Return how gradients of samples are clipped and noised in a job, by the seed; None if they are not."""
    draw = simulated(experiment.seed, "steps", job.round, job.client)
    return _steps(experiment, draw, lambda size, total, generator: torch.randperm(total, generator=generator)[:size])


def secret_steps(experiment: Experiment, _: Job) -> PrivateSteps | None:
    """Return the same for a node of a deployment: noise and batches that no seed gives away.

    A batch must be as secret as the noise, since the account counts on nobody knowing whose gradients are in it.
    """
    return _steps(experiment, from_system, lambda size, total, _generator: torch.tensor(secret_sample(size, total)))


def _steps(experiment: Experiment, draw: Draw, choose: Choose) -> PrivateSteps | None:
    settings = experiment.privacy
    if not settings.covers_samples:
        return None
    assert settings.noise_multiplier is not None
    return PrivateSteps(settings.first_norm, settings.noise_multiplier, draw, choose)


def check_statistics(names: Collection[str]) -> None:
    """Raise `InputError` if a model has running statistics: samples change them, and no noise covers that."""
    if names:
        raise InputError("privacy: is not allowed with a model that has running statistics (batch norm)")


def step_mechanism(experiment: Experiment, samples: int) -> Mechanism:
    """Return what each local step of a client with so many samples releases."""
    settings, batch = experiment.privacy, min(experiment.client.batch_size, samples)
    return Mechanism(batch, samples, settings.noise_multiplier or 0.0, settings.accountant)


def sample_gradients(task: Task, weights: Weights, batch: Batch) -> tuple[Weights, Tensor]:
    """Return the gradient of every sample's loss, stacked, and the mean loss."""

    def loss_of(of: Weights, inputs: Inputs, label: Tensor) -> tuple[Tensor, Tensor]:
        alone = {name: one[None] for name, one in inputs.items()} if isinstance(inputs, dict) else inputs[None]
        loss = task.objective.loss(task.model.outputs({**of, **task.buffers}, alone)[1], label[None])
        return loss, loss.detach()

    one, fixed = torch.func.grad(loss_of, has_aux=True), {name: tensor.detach() for name, tensor in weights.items()}
    try:
        each = torch.func.vmap(one, in_dims=(None, 0, 0), randomness="different")
        found, losses = each(fixed, batch.inputs, batch.labels)
    except RuntimeError as error:
        if "vmap" not in str(error):
            raise
        # It cannot follow what depends on values: a loss that leaves out tokens, a model that asks for its mask.
        found, losses = _one_by_one(lambda inputs, label: one(fixed, inputs, label), batch)
    return found, losses.mean()


def _one_by_one(gradient: Callable[[Inputs, Tensor], tuple[Weights, Tensor]], batch: Batch) -> tuple[Weights, Tensor]:
    """Return the gradient and the loss of every sample, stacked."""
    found = [gradient(pick(batch.inputs, number), batch.labels[number]) for number in torch.arange(len(batch))]
    gradients, losses = zip(*found, strict=True)
    return {name: torch.stack([own[name] for own in gradients]) for name in gradients[0]}, torch.stack(losses)


def clipped_total(found: Weights, clip_norm: float) -> Weights:
    """Return the sum of stacked gradients, each clipped over all tensors together; what is not finite counts as 0.

    A sample whose gradient is not finite would otherwise make all of the sum so, which no noise hides.
    """
    found = {name: tensor.nan_to_num(0.0, 0.0, 0.0) for name, tensor in found.items()}
    squares = torch.stack([tensor.flatten(1).square().sum(dim=1) for tensor in found.values()]).sum(dim=0)
    factors = (clip_norm / squares.sqrt().clamp_min(torch.finfo(squares.dtype).tiny)).clamp_max(1.0)
    return {name: torch.einsum("s,s...->...", factors, tensor) for name, tensor in found.items()}


def random_batches(
    dataset: Dataset, indices: Tensor, size: int, choose: Choose, generator: torch.Generator, device: torch.device
) -> Iterator[Batch]:
    """Yield batches without end, each of `size` samples (or all) drawn anew without replacement; none of no samples."""
    size = min(size, len(indices))
    while size:
        chosen = indices[choose(size, len(indices), generator)]
        yield from batches(dataset, chosen, size, 1, generator, device)
