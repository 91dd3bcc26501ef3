"""Methods, models and data of a user's own, named as `tests.support.user_code:…` in experiments of the tests."""

import multiprocessing
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from fedsol.algorithms.base import Algorithm
from fedsol.core.weights import norm, scale, subtract


def with_batch_norm(input_shape, classes):
    """An image model with a batch norm that keeps running statistics."""
    size = int(np.prod(input_shape))
    return nn.Sequential(
        nn.Flatten(), nn.Linear(size, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, classes)
    )


def frozen_body(input_shape, classes, elsewhere=0.0):
    """Random features that never change, with running statistics; in other processes they may be others."""
    model = with_batch_norm(input_shape, classes)
    model[1].requires_grad_(False)
    with torch.no_grad():
        model[1].bias += elsewhere * (multiprocessing.current_process().name != "MainProcess")
    return model


class Scaled(nn.Sequential):
    """Has a weight that is a single number."""

    def __init__(self, *layers):
        super().__init__(*layers)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, inputs):
        return super().forward(self.scale * inputs)


def scaled(input_shape, classes):
    """An image model with a learned scale of its inputs."""
    return Scaled(nn.Flatten(), nn.Linear(int(np.prod(input_shape)), classes))


def uneven_clients():
    """Three clients; the first has a single sample."""
    rng = np.random.default_rng(0)
    labels = np.arange(41) % 3
    return {
        "x_train": (rng.normal(size=(41, 4)) + labels[:, None]).astype(np.float32),
        "y_train": labels,
        "clients_train": np.array([0] + [1] * 20 + [2] * 20),
        "x_test": (rng.normal(size=(9, 4)) + (np.arange(9) % 3)[:, None]).astype(np.float32),
        "y_test": np.arange(9) % 3,
    }


@dataclass(frozen=True)
class Nameless(Algorithm):
    """Forgets a weight."""

    def gradient(self, task, weights, batch, state):
        gradient, loss = super().gradient(task, weights, batch, state)
        gradient.pop("head.bias")
        return gradient, loss


@dataclass(frozen=True)
class Exploding(Algorithm):
    """Overflows the test loss while every weight is finite."""

    def aggregate(self, server, updates):
        weights = {name: torch.full_like(tensor, 3e38) for name, tensor in server.weights.items()}
        return replace(server, weights=weights)


@dataclass(frozen=True)
class SendsALength(Algorithm):
    """Sends a number that depends on the client's data."""

    def finish(self, task, weights, steps, state):
        return {}, {"length": norm(subtract(weights, task.anchor))}


class Counting(nn.Module):
    """Asks for the number of its inputs in a way that an export cannot follow."""

    def __init__(self, size, classes):
        super().__init__()
        self.head = nn.Linear(size, classes)

    def forward(self, inputs):
        return self.head(inputs.reshape(len(inputs), -1))


def counting(input_shape, classes):
    """A linear model of images."""
    return Counting(int(np.prod(input_shape)), classes)


@dataclass(frozen=True)
class FailsAbove(Algorithm):
    """Its global model is not finite if the factor is 2 or more."""

    factor: float = 1.0

    def aggregate(self, server, updates):
        averaged = super().aggregate(server, updates)
        return averaged if self.factor < 2 else replace(averaged, weights=scale(averaged.weights, float("inf")))
