"""FedSAM and FedASAM by hand."""

from math import exp, log, sqrt

from tests.support.one_weight_per_logit import close, column, step


def test_a_step_of_fedsam():
    # w = 0: g = (-1/2, 1/2), ||g|| = 1/sqrt(2). rho = ln(3) / sqrt(2): eps = rho sqrt(2) g = ln 3 (-1/2, 1/2).
    # At w + eps the logits differ by ln 3: p = (1/4, 3/4), so the gradient is (-3/4, 3/4).
    close(step({"name": "fedsam", "rho": log(3) / sqrt(2)}, column(0, 0), column(0, 0)), column(-0.75, 0.75))


def test_a_step_of_fedasam():
    # w = (2, 1): g = (-s, s) with s = 1 - sigmoid(1). |w| g = (-2 s, s) has norm s sqrt(5), w^2 g = (-4 s, s).
    # rho = sqrt(5) / 10: eps = (-0.4, 0.1); the logits 1.6 and 1.1 differ by 1/2.
    p = 1 / (1 + exp(-0.5))
    close(step({"name": "fedasam", "rho": sqrt(5) / 10}, column(0, 0), column(2, 1)), column(p - 1, 1 - p))


def test_a_step_of_fedasam_where_no_two_slopes_are_alike():
    # w = (0, ln 2, ln 3): p = (1, 2, 3) / 6, g = (-5/6, 1/3, 1/2); eps = rho w^2 g / || |w| g ||, rho = 1.
    length = sqrt((log(2) / 3) ** 2 + (log(3) / 2) ** 2)
    odds = [1.0, 2 * exp(log(2) ** 2 / 3 / length), 3 * exp(log(3) ** 2 / 2 / length)]
    p = [part / sum(odds) for part in odds]
    found = step({"name": "fedasam", "rho": 1.0}, column(0, 0, 0), column(0, log(2), log(3)))
    close(found, column(p[0] - 1, p[1], p[2]))
