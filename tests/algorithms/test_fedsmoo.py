"""FedSMOO by hand."""

from math import exp

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.directions import AGREED, DUAL
from fedsol.algorithms.feddyn import HISTORY
from fedsol.core.weights import prefixed, without_prefix
from tests.support.one_weight_per_logit import BATCH, close, column, server, task_at, update

ALGORITHM = make_algorithm({"name": "fedsmoo", "rho": 5.0, "alpha": 0.5})
TASK = task_at(column(-2, 2))


def view():
    own = {**prefixed(DUAL, column(1.5, -4.5)), **prefixed(HISTORY, column(1, 3))}
    return ALGORITHM.begin(TASK, prefixed(AGREED, column(1, 1)), own)


def test_a_step_and_what_the_next_one_sees():
    # w = 0: g_l - mu - s = (-1/2, 1/2) - (3/2, -9/2) - (1, 1) = (-3, 4), of length 5: eps = (-3, 4).
    # At w + eps: p = 1 / (1 + e^7); FedDyn adds -h + alpha (w - a) = (-1, -3) + 1/2 (2, -2).
    p = 1 / (1 + exp(7))
    gradient, _, after = ALGORITHM.step(TASK, column(0, 0), BATCH, view())
    close(gradient, column(p - 1, 1 - p - 4))
    # mu + eps - s = (3/2, -9/2) + (-3, 4) - (1, 1)
    close(without_prefix(DUAL, after), column(-2.5, -1.5))
    state, payload = ALGORITHM.finish(TASK, column(0, 0), 1, after)
    close(without_prefix(DUAL, state), column(-2.5, -1.5))
    close(without_prefix(DUAL, payload), column(-2.5, -1.5))
    close(without_prefix(HISTORY, state), column(1 - 1, 3 + 1))


def test_the_server():
    # The mean of the dual variables, (3, 4), becomes rho (3, 4) / 5: over clients, not by shares. FedDyn's side, with
    # N = 4: h = -1/2 / 4 * ((1, 0) + (0, 1)), w = (1/4, 3/4) - h / alpha.
    before = server(column(0, 0), ALGORITHM.init_server(column(0, 0)), clients=4)
    updates = [
        update(0, column(1, 0), 0.25, payload=prefixed(DUAL, column(6, 0))),
        update(1, column(0, 1), 0.75, payload=prefixed(DUAL, column(0, 8))),
    ]
    after = ALGORITHM.aggregate(before, updates)
    close(without_prefix(AGREED, after.state), column(3, 4))
    close(without_prefix(HISTORY, after.state), column(-0.125, -0.125))
    close(after.weights, column(0.5, 1))
    close(ALGORITHM.broadcast(after), prefixed(AGREED, column(3, 4)))
