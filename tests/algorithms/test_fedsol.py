"""FedSOL by hand (the perturbation for each strength is in test_gradients)."""

from math import exp, log, sqrt

import pytest
from algorithms.one_weight_per_logit import close, column, step


def sigmoid(x):
    return 1 / (1 + exp(-x))


@pytest.mark.parametrize(
    ("strength", "difference"),
    [
        # w = (3, 4), a = 0, L2: g_p = (3, 4), ||g_p|| = 5. rho = 5: eps = (3, 4), the logits are 6 and 8.
        ("fixed", -2.0),
        # Lambda = (3, 4) / 5: eps = (9/5, 16/5), the logits 4.8 and 7.2.
        ("adaptive", -2.4),
        # One column: the same norm as over the tensor.
        ("adaptive-column", -2.4),
    ],
)
@pytest.mark.parametrize("perturb", ["all", "head"])
def test_a_step_with_l2(strength, difference, perturb):
    table = {"name": "fedsol", "rho": 5.0, "strength": strength, "perturb": perturb, "proximal": "l2"}
    p = sigmoid(difference)
    close(step(table, column(0, 0), column(3, 4)), column(p - 1, 1 - p))


def test_a_step_with_kl():
    # a = 0, w = (3 ln 3, 0), tau = 3: g_p = (1/12, -1/12) (see test_gradients), so g_p / ||g_p|| = (1, -1) / sqrt(2).
    # rho = sqrt(2), fixed: eps = (1, -1): the logits differ by 3 ln 3 + 2.
    table = {"name": "fedsol", "rho": sqrt(2), "strength": "fixed", "tau": 3.0}
    p = sigmoid(3 * log(3) + 2)
    close(step(table, column(0, 0), column(3 * log(3), 0)), column(p - 1, 1 - p))


def test_the_same_loss_as_an_auxiliary_one():
    # g_l + beta g_p at w = (3 ln 3, 0): p = 27/28; g_p = (1/12, -1/12); beta = 6.
    found = step({"name": "fedsol", "usage": "auxiliary", "beta": 6.0}, column(0, 0), column(3 * log(3), 0))
    close(found, column(27 / 28 - 1 + 0.5, 1 / 28 - 0.5))
