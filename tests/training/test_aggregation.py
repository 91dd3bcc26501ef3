"""Robust averages by hand; FedAvgM, FedAdam and FedYogi by hand: one weight, a change of 2, then one of 1."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsol.config.tables import ServerSettings
from fedsol.core.messages import ServerState
from fedsol.training.aggregation import apply_server_optimizer, robust_average

START = ServerState({"w": torch.tensor(10.0), "buffer": torch.tensor(1.0)}, ("w",), 2)


def after_rounds(settings, changes):
    """The weight after rounds in which the algorithm changed it by these amounts, and the buffer by 1."""
    server, seen = START, []
    for change in changes:
        proposed = {"w": server.weights["w"] + change, "buffer": server.weights["buffer"] + 1}
        server = apply_server_optimizer(settings, server, replace(server, weights=proposed))
        seen.append(float(server.weights["w"]))
    assert float(server.weights["buffer"]) == 1.0 + len(changes)  # buffers are left to the algorithm
    return seen


def test_the_average_is_taken_as_it_is():
    after = replace(START, weights={"w": torch.tensor(3.0), "buffer": torch.tensor(2.0)})
    assert apply_server_optimizer(ServerSettings(), START, after) is after


def test_momentum():
    # v = 2, w = 10 + 0.5 * 2 = 11; v = 0.9 * 2 + 1 = 2.8, w = 11 + 1.4 = 12.4
    settings = ServerSettings(optimizer="momentum", optimizer_lr=0.5)
    assert after_rounds(settings, [2.0, 1.0]) == pytest.approx([11.0, 12.4])


def test_adam():
    # beta1 = 0.5, beta2 = 0.75, epsilon = 0.1: m = 1, v = 0.75 * 0.01 + 0.25 * 4 = 1.0075, step m / (sqrt v + 0.1).
    # Then m = 0.5 + 0.5 = 1, v = 0.75 * 1.0075 + 0.25 = 1.005625.
    settings = ServerSettings(
        optimizer="adam", optimizer_lr=1.0, optimizer_momentum=0.5, optimizer_beta2=0.75, optimizer_epsilon=0.1
    )
    first = 10 + 1 / (1.0075**0.5 + 0.1)
    assert after_rounds(settings, [2.0, 1.0]) == pytest.approx([first, first + 1 / (1.005625**0.5 + 0.1)])


def test_yogi():
    # v = 0.01 - 0.25 * 4 * sign(0.01 - 4) = 1.01; then 1.01 - 0.25 * 1 * sign(1.01 - 1) = 0.76.
    settings = ServerSettings(
        optimizer="yogi", optimizer_lr=1.0, optimizer_momentum=0.5, optimizer_beta2=0.75, optimizer_epsilon=0.1
    )
    first = 10 + 1 / (1.01**0.5 + 0.1)
    assert after_rounds(settings, [2.0, 1.0]) == pytest.approx([first, first + 1 / (0.76**0.5 + 0.1)])


def test_the_median_by_hand():
    # By coordinate: 1, 2, 100 -> 2; four values 1, 2, 4, 100 -> (2 + 4) / 2. Counters come from the first.
    weights = [{"w": torch.tensor([v, -v]), "n": torch.tensor(k)} for k, v in enumerate([1.0, 100.0, 2.0])]
    settings = ServerSettings(aggregation="median")
    found = robust_average(settings, weights)
    assert torch.equal(found["w"], torch.tensor([2.0, -2.0]))
    assert int(found["n"]) == 0
    even = robust_average(settings, [*weights, {"w": torch.tensor([4.0, -4.0]), "n": torch.tensor(9)}])
    assert torch.equal(even["w"], torch.tensor([3.0, -3.0]))


def test_the_trimmed_mean_by_hand():
    # Of 0, 1, 2, 3, 100 one is cut off at either end (20 %): (1 + 2 + 3) / 3.
    weights = [{"w": torch.tensor([value])} for value in (0.0, 100.0, 1.0, 3.0, 2.0)]
    found = robust_average(ServerSettings(aggregation="trimmed-mean", trim=0.2), weights)
    assert torch.equal(found["w"], torch.tensor([2.0]))


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=9), st.sampled_from(["median", "trimmed-mean"]))
def test_robust_averages_lie_between_the_values_and_do_not_depend_on_their_order(values, kind):
    settings = ServerSettings(aggregation=kind, trim=0.2)
    found = robust_average(settings, [{"w": torch.tensor([value])} for value in values])["w"]
    again = robust_average(settings, [{"w": torch.tensor([value])} for value in reversed(values)])["w"]
    assert min(values) - 1e-4 <= float(found) <= max(values) + 1e-4
    torch.testing.assert_close(found, again)
