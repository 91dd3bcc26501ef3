"""FedAvg by hand."""

from math import log

from fedsol.algorithms import make_algorithm
from tests.support.one_weight_per_logit import close, column, server, step, update


def test_a_step():
    # w = (ln 3, 0): p = (3/4, 1/4), so g_l = (3/4 - 1, 1/4).
    close(step({"name": "fedavg"}, column(0, 0), column(log(3), 0)), column(-0.25, 0.25))


def test_the_average():
    # 0.25 * (4, 0) + 0.75 * (0, 8) = (1, 6)
    after = make_algorithm({"name": "fedavg"}).aggregate(
        server(column(9, 9)), [update(0, column(4, 0), 0.25), update(1, column(0, 8), 0.75)]
    )
    close(after.weights, column(1, 6))
