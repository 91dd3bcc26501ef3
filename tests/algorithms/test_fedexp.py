"""FedExP by hand."""

import fedsol
from fedsol.algorithms import make_algorithm
from tests.support.cases import experiment
from tests.support.one_weight_per_logit import close, column, server, update
from tests.support.tensors import same_tensors


def test_clients_that_disagree_make_a_longer_step():
    # D = (2, 1) and (-2, 1), both of squared length 5; their mean is (0, 1): 5 / (2 (1 + 1/4)) = 2.
    updates = [update(0, column(3, 2), 0.5), update(1, column(-1, 2), 0.5)]
    after = make_algorithm({"name": "fedexp", "epsilon": 0.25}).aggregate(server(column(1, 1)), updates)
    close(after.weights, column(1, 3))


def test_shares_count_for_the_squares_too():
    # D = (4, 0) and (0, 4), shares 1/4 and 3/4: mean (1, 3), squares 16: 16 / (2 * 10) < 1, so the step is 1.
    updates = [update(0, column(4, 0), 0.25), update(1, column(0, 4), 0.75)]
    algorithm = make_algorithm({"name": "fedexp", "epsilon": 0.0})
    close(algorithm.aggregate(server(column(0, 0)), updates).weights, column(1, 3))
    # (6, 0) and (-2, 0): mean (0, 0) of which nothing is left to make longer.
    updates = [update(0, column(6, 0), 0.25), update(1, column(-2, 0), 0.75)]
    close(algorithm.aggregate(server(column(0, 0)), updates).weights, column(0, 0))
    # (6, 0) and (-2, 4): mean (0, 3), squares 9 + 15 = 24: 24 / 18.
    updates = [update(0, column(6, 0), 0.25), update(1, column(-2, 4), 0.75)]
    close(algorithm.aggregate(server(column(0, 0)), updates).weights, column(0, 4))


def test_with_one_client_it_is_fedavg_bit_for_bit():
    alone = {"data__partition__clients": 1, "server__fraction": 1.0}
    runs = [fedsol.train(experiment({"name": name}, **alone)) for name in ("fedexp", "fedavg")]
    assert same_tensors(runs[0].weights, runs[1].weights)
