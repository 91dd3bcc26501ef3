"""FedNova by hand."""

import pytest
import torch

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.fednova import STEPS
from tests.support.one_weight_per_logit import close, column, server, task_at, update


def test_the_effective_steps():
    # Two steps with momentum 1/2: 1.5 + 1 = 2.5 (see SCAFFOLD); without momentum 2.
    for momentum, expected in [(0.5, 2.5), (0.0, 2.0)]:
        task = task_at(column(0, 0), momentum=momentum)
        _, payload = make_algorithm({"name": "fednova"}).finish(task, column(1, 1), 2, {})
        assert float(payload[STEPS]) == pytest.approx(expected)


def test_normalized_averaging():
    # a = (10, 10); client 0 (share 1/4) moved by (-4, 0) in 2 steps, client 1 (share 3/4) by (0, -8) in 4 steps.
    # Per step: (-2, 0) and (0, -2); averaged: (-0.5, -1.5); steps on average: 0.25 * 2 + 0.75 * 4 = 3.5.
    # w = a + 3.5 * (-0.5, -1.5) = (10 - 1.75, 10 - 5.25). (FedAvg would give (9, 4).)
    updates = [
        update(0, column(6, 10), 0.25, payload={STEPS: torch.tensor(2.0)}),
        update(1, column(10, 2), 0.75, payload={STEPS: torch.tensor(4.0)}),
    ]
    after = make_algorithm({"name": "fednova"}).aggregate(server(column(10, 10)), updates)
    close(after.weights, column(8.25, 4.75))


def test_equal_steps_are_fedavg():
    updates = [update(i, column(i, 5), 0.5, payload={STEPS: torch.tensor(3.0)}) for i in (0, 1)]
    close(make_algorithm({"name": "fednova"}).aggregate(server(column(10, 10)), updates).weights, column(0.5, 5))
