"""FedSpeed by hand."""

from math import log, sqrt

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.feddyn import HISTORY
from fedsol.core.weights import prefixed, without_prefix
from tests.support.one_weight_per_logit import BATCH, close, column, task_at

ALGORITHM = make_algorithm({"name": "fedspeed", "rho": log(3) / sqrt(2), "alpha": 0.75, "lam": 4.0})
TASK, STATE = task_at(column(-2, 2)), prefixed(HISTORY, column(1, 3))


def test_a_step():
    # w = 0: g = (-1/2, 1/2); at SAM's point (-3/4, 3/4), as in FedSAM's step. The mix is (-11/16, 11/16);
    # -h + (w - a) / 4 = (-1/2, -7/2).
    gradient, _ = ALGORITHM.gradient(TASK, column(0, 0), BATCH, STATE)
    close(gradient, column(-11 / 16 - 1 / 2, 11 / 16 - 7 / 2))


def test_what_is_kept_and_what_is_sent():
    # h - (w - a) / 4 = (1, 3) - (2, 2) / 4 = (1/2, 5/2); w - 4 h = (0 - 2, 4 - 10)
    weights = column(0, 4)
    state, payload = ALGORITHM.finish(TASK, weights, 3, STATE)
    close(without_prefix(HISTORY, state), column(0.5, 2.5))
    assert payload == {}
    close(ALGORITHM.upload(TASK, weights, STATE), column(-2, -6))
