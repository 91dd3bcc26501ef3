"""FedProx by hand."""

from math import log

from tests.support.one_weight_per_logit import close, column, step


def test_a_step():
    # w = (ln 3, 0): g_l = (-1/4, 1/4). a = (0, 1), so w - a = (ln 3, -1) and mu (w - a) = (2 ln 3, -2).
    found = step({"name": "fedprox", "mu": 2.0}, column(0, 1), column(log(3), 0))
    close(found, column(-0.25 + 2 * log(3), 0.25 - 2))


def test_a_projected_step_in_conflict():
    # w = (0, 0): g_l = (-1/2, 1/2). a = (-1, 0), so g_p = w - a = (1, 0): g_l . g_p = -1/2 < 0.
    # g_l - (-1/2 / 1) (1, 0) = (0, 1/2), orthogonal to g_p.
    close(step({"name": "fedprox", "usage": "projected"}, column(-1, 0), column(0, 0)), column(0, 0.5))


def test_a_projected_step_without_conflict():
    # a = (1, 0): g_p = (-1, 0), g_l . g_p = 1/2 >= 0: g_l as it is.
    close(step({"name": "fedprox", "usage": "projected"}, column(1, 0), column(0, 0)), column(-0.5, 0.5))
