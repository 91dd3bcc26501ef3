"""FedACG by hand."""

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.controls import MOMENTUM
from fedsol.core.weights import prefixed, without_prefix
from tests.support.cases import experiment
from tests.support.one_weight_per_logit import close, column, server, step, update
from tests.support.runs import trained
from tests.support.tensors import same_tensors

ALGORITHM = make_algorithm({"name": "fedacg", "lam": 0.5})


def test_a_step():
    # w = 0: g_l = (-1/2, 1/2); 1/4 (w - a) = (1/2, -1).
    close(step({"name": "fedacg", "beta": 0.25}, column(-2, 4), column(0, 0)), column(0, -0.5))


def test_what_is_sent_and_the_momentum():
    before = server(column(1, 2), prefixed(MOMENTUM, column(4, -2)))
    close(ALGORITHM.sent(before), column(3, 1))
    assert ALGORITHM.broadcast(before) == {}
    # From a = (3, 1) to the mean (3/4, 13/4): m = 1/2 (4, -2) + (-9/4, 9/4).
    sending = server(column(3, 1), before.state)
    after = ALGORITHM.aggregate(sending, [update(0, column(0, 4), 0.75), update(1, column(3, 1), 0.25)])
    close(after.weights, column(0.75, 3.25))
    close(without_prefix(MOMENTUM, after.state), column(-0.25, 1.25))


def test_with_a_frozen_classifier_clients_receive_it_as_it_is():
    run = trained(experiment({"name": "fedacg"}, client__trains="body"))
    plain = trained(experiment({"name": "fedavg"}, client__trains="body"))
    assert same_tensors(
        {n: t for n, t in run.weights.items() if "head" in n}, {n: t for n, t in plain.weights.items() if "head" in n}
    )
