"""FedNTD by hand."""

from math import log

from tests.support.one_weight_per_logit import close, column, step


def test_a_step():
    # a = 0: without the true class (0), q_a = (1/2, 1/2). w = (0, ln 3, 0): q_w = (3/4, 1/4).
    # Gradient of KL(q_a || q_w) with respect to the two logits: q_w - q_a = (1/4, -1/4); the true one has none.
    # p = (1, 3, 1) / 5, so g_l = (-4/5, 3/5, 1/5).
    found = step({"name": "fedntd"}, column(0, 0, 0), column(0, log(3), 0))
    close(found, column(-0.8, 0.6 + 0.25, 0.2 - 0.25))


def test_the_temperature_and_its_square():
    # tau = 2, w = (0, 2 ln 3, 0): w / tau is as above, and tau^2 * (1 / tau) * (1/4, -1/4) = (1/2, -1/2).
    # p = (1, 9, 1) / 11. beta = 3.
    found = step({"name": "fedntd", "tau": 2.0, "beta": 3.0}, column(0, 0, 0), column(0, 2 * log(3), 0))
    close(found, column(1 / 11 - 1, 9 / 11 + 1.5, 1 / 11 - 1.5))
