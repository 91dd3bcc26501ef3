"""FedCM and MoFedSAM by hand."""

from math import log, sqrt

import pytest

from fedsol.algorithms import controls, make_algorithm
from fedsol.algorithms.controls import MOMENTUM
from fedsol.core.weights import prefixed, without_prefix
from tests.support.one_weight_per_logit import close, column, server, step, task_at, update


def test_a_step():
    # w = 0: g_l = (-1/2, 1/2); D = (1, 2): 0.2 g_l + 0.8 D = (-0.1 + 0.8, 0.1 + 1.6).
    state = prefixed(MOMENTUM, column(1, 2))
    close(step({"name": "fedcm", "alpha": 0.2}, column(0, 0), column(0, 0), state), column(0.7, 1.7))


def test_a_step_of_mofedsam():
    # As in FedSAM's step, the gradient at w + eps is (-3/4, 3/4): 0.2 g + 0.8 D = (-0.15 + 0.8, 0.15 + 1.6).
    table = {"name": "mofedsam", "rho": log(3) / sqrt(2), "alpha": 0.2}
    close(step(table, column(0, 0), column(0, 0), prefixed(MOMENTUM, column(1, 2))), column(0.65, 1.75))


@pytest.mark.parametrize("name", ["fedcm", "mofedsam"])
def test_the_mean_gradient(name):
    # Two steps of 0.1 with momentum 1/2 count 2.5: (1, -1) / 0.25 = (4, -4); one step of the other: (2, 4) / 0.1.
    # The mean is over clients, the weights are averaged by shares.
    algorithm, task = make_algorithm({"name": name}), task_at(column(1, 0), lr=0.1, momentum=0.5)
    before = server(column(1, 0), algorithm.init_server(column(1, 0)), clients=9)
    close(without_prefix(MOMENTUM, before.state), column(0, 0))
    updates = []
    for client, (weights, steps, share) in enumerate([(column(0, 1), 2, 0.25), (column(-1, -4), 1, 0.75)]):
        state, payload = algorithm.finish(task, weights, steps, before.state)
        assert state == {}
        assert payload.keys() == {controls.FACTOR}
        updates.append(update(client, weights, share, payload=payload))
    after = algorithm.aggregate(before, updates)
    close(without_prefix(MOMENTUM, after.state), column((4 + 20) / 2, (-4 + 40) / 2))
    close(after.weights, column(-0.75, 0.25 - 3))
