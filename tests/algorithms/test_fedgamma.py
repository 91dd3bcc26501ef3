"""FedGAMMA by hand."""

from math import log, sqrt

from fedsol.algorithms import controls, make_algorithm
from fedsol.core.weights import prefixed, without_prefix
from tests.support.one_weight_per_logit import BATCH, close, column, task_at


def test_a_step_and_a_new_control_variate():
    # As in FedSAM's step, the gradient at w + eps is (-3/4, 3/4); c - c_i = (1/2, -2) is added.
    algorithm = make_algorithm({"name": "fedgamma", "rho": log(3) / sqrt(2)})
    task = task_at(column(0, 0), lr=0.1)
    view = algorithm.begin(task, prefixed(controls.GLOBAL, column(1, 2)), prefixed(controls.OWN, column(0.5, 4)))
    gradient, _ = algorithm.gradient(task, column(0, 0), BATCH, view)
    close(gradient, column(-0.25, -1.25))
    # c_i - c + (a - w) / (2 lr) = (-1/2, 2) + (1, -1) / 0.2
    state, payload = algorithm.finish(task, column(-1, 1), 2, view)
    close(without_prefix(controls.OWN, state), column(4.5, -3))
    assert float(payload[controls.FACTOR]) == 5.0
