"""The setting of the hand-derived steps: the input is 1, so the logits are the weights, and the label is 0.

With `p = softmax(w)` the local gradient is `g_l = p - (1, 0, …)`.
"""

import torch

from fedsol.algorithms import make_algorithm
from fedsol.core.messages import ServerState, Update
from fedsol.data.batches import Batch
from tests.support.toys import OnlyHead, split, task_for

NAME = "head.weight"
BATCH = Batch(torch.ones(1, 1, dtype=torch.float64), torch.tensor([0]))


def column(*values):
    """Weights as the model has them."""
    return {NAME: torch.tensor(values, dtype=torch.float64)[:, None]}


def task_at(anchor, **options):
    """A task whose anchor are these logits."""
    model = split(OnlyHead(1, len(anchor[NAME])).double(), (1,))
    return task_for(model, anchor, **options)


def step(table, anchor, weights, state=None, **options):
    """The gradient that a method applies at `weights`."""
    algorithm = make_algorithm(table)
    task = task_at(anchor, **options)
    gradient, _ = algorithm.gradient(task, weights, BATCH, state or {})
    return gradient


def server(anchor, state=None, clients=2):
    """A server with these global weights."""
    return ServerState(anchor, (NAME,), clients, state or {})


def update(client, weights, share, **rest):
    """An update as the server sees it when it aggregates."""
    return Update(client, weights, examples=1, steps=1, share=share, **rest)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
