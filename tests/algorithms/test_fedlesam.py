"""FedLESAM, FedLESAM-S and FedLESAM-D by hand."""

from math import exp

import pytest

from fedsol.algorithms import controls, make_algorithm
from fedsol.algorithms.directions import PREVIOUS
from fedsol.algorithms.feddyn import HISTORY
from fedsol.core.weights import prefixed, without_prefix
from tests.support.one_weight_per_logit import BATCH, close, column, task_at

P = 1 / (1 + exp(2))  # at the perturbed weights of `test_a_step` the second logit is greater by 2


def seen(algorithm, task, own, broadcast=None):
    return algorithm.begin(task, broadcast or {}, {**prefixed(PREVIOUS, column(-5, 6)), **own})


@pytest.mark.parametrize(
    ("name", "own", "broadcast", "added"),
    [
        ("fedlesam", {}, {}, (0, 0)),
        # c - c_i = (2, -1)
        (
            "fedlesam-s",
            prefixed(controls.OWN, column(1, 3)),
            prefixed(controls.GLOBAL, column(3, 2)),
            (2, -1),
        ),
        # -h_i + alpha (w - a) = (-1, -3) + 1/2 (2, -2), at w itself
        ("fedlesam-d", prefixed(HISTORY, column(1, 3)), {}, (0, -4)),
    ],
)
def test_a_step(name, own, broadcast, added):
    # w_old - a = (-5, 6) - (-2, 2) = (-3, 4), of length 5: rho 10/7 makes eps = (-6/7, 8/7), so the logits differ by 2.
    settings = {"alpha": 0.5} if name == "fedlesam-d" else {}
    algorithm, task = make_algorithm({"name": name, "rho": 10 / 7, **settings}), task_at(column(-2, 2))
    weights = column(0, 0)
    gradient, _ = algorithm.gradient(task, weights, BATCH, seen(algorithm, task, own, broadcast))
    close(gradient, column(P - 1 + added[0], 1 - P + added[1]))


def test_a_client_remembers_what_it_received_and_starts_without():
    algorithm, task = make_algorithm({"name": "fedlesam", "rho": 9.0}), task_at(column(-2, 2))
    assert algorithm.init_client(column(0, 0), {}) == {}
    view = algorithm.begin(task, {}, {})
    close(algorithm.gradient(task, column(0, 0), BATCH, view)[0], column(-0.5, 0.5))
    state, payload = algorithm.finish(task, column(7, 7), 3, view)
    close(without_prefix(PREVIOUS, state), column(-2, 2))
    assert payload == {}
