"""SCAFFOLD by hand."""

import pytest

from fedsol.algorithms import controls, make_algorithm
from fedsol.core.weights import prefixed, without_prefix
from tests.support.one_weight_per_logit import BATCH, close, column, server, task_at, update

C, C_I = column(1, 2), column(0.5, 4)  # c - c_i = (1/2, -2)


def view(algorithm, task):
    return algorithm.begin(task, prefixed(controls.GLOBAL, C), prefixed(controls.OWN, C_I))


def test_a_step():
    # w = 0: g_l = (-1/2, 1/2); g_l - c_i + c = (0, -3/2).
    algorithm, task = make_algorithm({"name": "scaffold"}), task_at(column(0, 0))
    gradient, _ = algorithm.gradient(task, column(0, 0), BATCH, view(algorithm, task))
    close(gradient, column(0, -1.5))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # Two steps with momentum 1/2: the first gradient is applied 1 + 1/2 times, the second once: K' = 2.5.
        # c_i - c + (a - w) / (K' lr) = (-1/2, 2) + (1, -1) / (2.5 * 0.1) = (-1/2 + 4, 2 - 4)
        ({}, (3.5, -2.0)),
        # K = 2: (-1/2, 2) + (1, -1) / 0.2 = (-1/2 + 5, 2 - 5)
        ({"steps": "plain"}, (4.5, -3.0)),
        # The correction was not added to the gradient: (a - w) / (K' lr) = (4, -4)
        ({"usage": "perturbed"}, (4.0, -4.0)),
        ({"usage": "projected"}, (4.0, -4.0)),
    ],
)
def test_a_new_control_variate(settings, expected):
    algorithm = make_algorithm({"name": "scaffold", **settings})
    task = task_at(column(1, 0), lr=0.1, momentum=0.5)
    state, payload = algorithm.finish(task, column(0, 1), 2, view(algorithm, task))
    close(without_prefix(controls.OWN, state), column(*expected))
    # The server, alone with this client, moves its own by the whole change c_i_new - c_i.
    before = server(column(1, 0), prefixed(controls.GLOBAL, C), clients=1)
    after = algorithm.aggregate(before, [update(0, column(0, 1), 1.0, payload=payload)])
    close(without_prefix(controls.GLOBAL, after.state), column(1 + expected[0] - 0.5, 2 + expected[1] - 4))


def test_the_servers_control_variate():
    # N = 4 clients, two of them sampled with changes (4, 0) and (0, 8): c + 2/4 * mean = (1, 2) + 1/2 (2, 4) = (2, 4).
    # The mean is over clients, not by size; the weights are averaged by their shares.
    before = server(column(9, 9), prefixed(controls.GLOBAL, C), clients=4)
    updates = [
        update(0, column(4, 0), 0.25, payload=prefixed(controls.CHANGE, column(4, 0))),
        update(1, column(0, 8), 0.75, payload=prefixed(controls.CHANGE, column(0, 8))),
    ]
    after = make_algorithm({"name": "scaffold"}).aggregate(before, updates)
    close(without_prefix(controls.GLOBAL, after.state), column(2, 4))
    close(after.weights, column(1, 6))


def test_the_change_need_not_be_sent():
    """Client and server work it out alike: all that crosses the network beside the weights is one number."""
    algorithm, task = make_algorithm({"name": "scaffold"}), task_at(column(1, 0), lr=0.1, momentum=0.5)
    _, payload = algorithm.finish(task, column(0, 1), 2, view(algorithm, task))
    assert payload.keys() == {controls.FACTOR}
    assert float(payload[controls.FACTOR]) == pytest.approx(1 / (2.5 * 0.1))


def test_steps_with_momentum_count_the_gradients_they_apply():
    """Against the sum it stands for: gradient s of t is applied (1 - m^(t - s + 1)) / (1 - m) times."""
    for steps, momentum in [(1, 0.9), (7, 0.9), (50, 0.5), (3, 0.0)]:
        counted = sum((1 - momentum ** (steps - s)) / (1 - momentum) for s in range(steps))
        assert controls.momentum_steps(steps, momentum) == pytest.approx(counted)
