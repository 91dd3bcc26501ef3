"""FedInit by hand."""

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.fedinit import LAST
from fedsol.core.weights import without_prefix
from tests.support.one_weight_per_logit import close, column, task_at


def test_where_training_starts_and_what_is_kept():
    algorithm, task = make_algorithm({"name": "fedinit", "beta": 0.5}), task_at(column(1, 2))
    # a + 1/2 (a - w_last) = (1, 2) + 1/2 ((1, 2) - (3, -4)); a client that never trained has the initial weights.
    close(algorithm.start(task, algorithm.init_client(column(3, -4), {})), column(0, 5))
    state, payload = algorithm.finish(task, column(7, 8), 1, {})
    close(without_prefix(LAST, state), column(7, 8))
    assert payload == {}
