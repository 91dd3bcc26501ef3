"""DP-SGD: local steps whose gradients are clipped sample by sample and noised, for `[privacy] level = "example"`.

Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, algorithm 1. Every batch is a fresh random part of
the client's samples, all of one size: that is what the account counts.
"""

from collections.abc import Iterator
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
from fedsol.data.types import Dataset, Inputs
from fedsol.privacy.noise import Draw, simulated


@dataclass(frozen=True)
class PrivateSteps:
    """How the gradient of a batch is clipped and noised."""

    clip_norm: float
    """Of the gradient of one sample."""
    noise_multiplier: float
    draw: Draw

    def gradient(
        self, algorithm: Algorithm, task: Task, weights: Weights, batch: Batch, state: State
    ) -> tuple[Weights, Tensor]:
        """Return the noised mean of clipped gradients, with the method's proximal term, and the mean loss."""
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


def private_steps(experiment: Experiment, job: Job) -> PrivateSteps | None:
    """Return how gradients of samples are clipped and noised in a job; None if they are not."""
    settings = experiment.privacy
    if not settings.is_on or settings.covers_clients:
        return None
    assert settings.noise_multiplier is not None
    draw = simulated(experiment.seed, "steps", job.round, job.client)
    return PrivateSteps(settings.first_norm, settings.noise_multiplier, draw)


def sample_gradients(task: Task, weights: Weights, batch: Batch) -> tuple[Weights, Tensor]:
    """Return the gradient of every sample's loss, stacked, and the mean loss."""

    def loss_of(of: Weights, inputs: Inputs, label: Tensor) -> tuple[Tensor, Tensor]:
        alone = {name: one[None] for name, one in inputs.items()} if isinstance(inputs, dict) else inputs[None]
        loss = task.objective.loss(task.model.outputs({**of, **task.buffers}, alone)[1], label[None])
        return loss, loss.detach()

    each = torch.func.vmap(torch.func.grad(loss_of, has_aux=True), in_dims=(None, 0, 0), randomness="different")
    found, losses = each({name: tensor.detach() for name, tensor in weights.items()}, batch.inputs, batch.labels)
    return found, losses.mean()


def clipped_total(found: Weights, clip_norm: float) -> Weights:
    """Return the sum of stacked gradients, each clipped over all tensors together."""
    squares = torch.stack([tensor.flatten(1).square().sum(dim=1) for tensor in found.values()]).sum(dim=0)
    factors = (clip_norm / squares.sqrt().clamp_min(torch.finfo(squares.dtype).tiny)).clamp_max(1.0)
    return {name: torch.einsum("s,s...->...", factors, tensor) for name, tensor in found.items()}


def random_batches(
    dataset: Dataset, indices: Tensor, size: int, epochs: int, generator: torch.Generator, device: torch.device
) -> Iterator[Batch]:
    """Yield as many batches as so many epochs have, each of `size` samples drawn anew without replacement."""
    size = min(size, len(indices))
    for _ in range(epochs * -(-len(indices) // size)):
        chosen = indices[torch.randperm(len(indices), generator=generator)[:size]]
        yield from batches(dataset, chosen, size, 1, generator, device)
