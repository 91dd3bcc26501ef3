"""FedDyn by hand."""

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.feddyn import HISTORY
from fedsol.core.weights import prefixed, without_prefix
from tests.support.one_weight_per_logit import close, column, server, step, task_at, update

TABLE = {"name": "feddyn", "alpha": 0.5}


def test_a_step():
    # w = 0: g_l = (-1/2, 1/2); h_i = (1, 2); a = (2, 0): -h_i + alpha (w - a) = (-1, -2) + 1/2 (-2, 0) = (-2, -2).
    found = step(TABLE, column(2, 0), column(0, 0), prefixed(HISTORY, column(1, 2)))
    close(found, column(-2.5, -1.5))


def test_a_clients_new_history():
    # h_i - alpha (w - a) = (1, 2) - 1/2 (3, -1) = (-1/2, 5/2)
    state, payload = make_algorithm(TABLE).finish(
        task_at(column(0, 1)), column(3, 0), 5, prefixed(HISTORY, column(1, 2))
    )
    close(without_prefix(HISTORY, state), column(-0.5, 2.5))
    assert payload == {}


def test_the_server():
    # a = (1, 1), N = 4; w_0 = (5, 1), w_1 = (1, 9): h - alpha / N sum (w_i - a) = (0, 1) - 1/8 (4, 8) = (-1/2, 0).
    # Mean by shares 1/4, 3/4: (2, 7); minus h / alpha = (-1, 0): (3, 7).
    before = server(column(1, 1), prefixed(HISTORY, column(0, 1)), clients=4)
    after = make_algorithm(TABLE).aggregate(before, [update(0, column(5, 1), 0.25), update(1, column(1, 9), 0.75)])
    close(without_prefix(HISTORY, after.state), column(-0.5, 0))
    close(after.weights, column(3, 7))


def test_the_history_is_not_sent_to_clients():
    assert make_algorithm(TABLE).broadcast(server(column(0, 0), prefixed(HISTORY, column(1, 1)))) == {}
