"""Robust averages by hand; FedAvgM, FedAdam and FedYogi by hand: one weight, a change of 2, then one of 1/2."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsol.algorithms.base import Algorithm
from fedsol.config.tables import ServerSettings
from fedsol.core.messages import ServerState, Update
from fedsol.training.aggregation import (
    aggregate,
    apply_server_optimizer,
    geometric_median_shares,
    krum_shares,
    robust_average,
    squared_distances,
)

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


@pytest.mark.parametrize(("lr", "expected"), [(0.5, [11.0, 11.25]), (1.5, [13.0, 13.75]), (1.0, [12.0, 12.5])])
def test_the_step_of_plain_averaging(lr, expected):
    assert after_rounds(ServerSettings(lr=lr), [2.0, 0.5]) == pytest.approx(expected)


def test_momentum():
    # v = 2, w = 10 + 0.5 * 2 = 11; v = 0.9 * 2 + 0.5 = 2.3, w = 11 + 1.15 = 12.15
    settings = ServerSettings(optimizer="momentum", optimizer_lr=0.5)
    assert after_rounds(settings, [2.0, 0.5]) == pytest.approx([11.0, 12.15])


def test_adam():
    # beta1 = 0.5, beta2 = 0.75, epsilon = 0.1: m = 1, v = 0.75 * 0.01 + 0.25 * 4 = 1.0075, step m / (sqrt v + 0.1).
    # Then m = 0.5 + 0.25 = 0.75, v = 0.75 * 1.0075 + 0.25 / 4 = 0.818125.
    settings = ServerSettings(
        optimizer="adam", optimizer_lr=1.0, optimizer_momentum=0.5, optimizer_beta2=0.75, optimizer_epsilon=0.1
    )
    first = 10 + 1 / (1.0075**0.5 + 0.1)
    assert after_rounds(settings, [2.0, 0.5]) == pytest.approx([first, first + 0.75 / (0.818125**0.5 + 0.1)])


def test_yogi():
    # v = 0.01 - 0.25 * 4 * sign(0.01 - 4) = 1.01; then 1.01 - 0.25 / 4 * sign(1.01 - 1/4) = 0.9475.
    settings = ServerSettings(
        optimizer="yogi", optimizer_lr=1.0, optimizer_momentum=0.5, optimizer_beta2=0.75, optimizer_epsilon=0.1
    )
    first = 10 + 1 / (1.01**0.5 + 0.1)
    assert after_rounds(settings, [2.0, 0.5]) == pytest.approx([first, first + 0.75 / (0.9475**0.5 + 0.1)])


def test_yogi_leaves_a_second_moment_that_fits():
    settings = ServerSettings(optimizer="yogi")
    server = replace(START, optimizer={"first-moment/w": torch.tensor(0.0), "second-moment/w": torch.tensor(4.0)})
    after = replace(server, weights={"w": torch.tensor(12.0), "buffer": torch.tensor(1.0)})
    assert float(apply_server_optimizer(settings, server, after).optimizer["second-moment/w"]) == 4.0


@pytest.mark.parametrize(
    ("optimizer", "step"),
    [("momentum", 2.0), ("adam", 0.01 * 0.2 / (0.04000099**0.5 + 1e-3)), ("yogi", 0.01 * 0.2 / (0.040001**0.5 + 1e-3))],
)
def test_the_learning_rate_by_default(optimizer, step):
    # 1 for momentum, 0.01 for the others: m = 0.1 * 2, v = 0.99 * 1e-6 + 0.01 * 4 for adam, 1e-6 + 0.01 * 4 for yogi.
    assert after_rounds(ServerSettings(optimizer=optimizer), [2.0]) == pytest.approx([10 + step])


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({}, 18.0),  # 0.5 * 12 + 0.25 * 16 + 0.25 * 32
        ({"aggregation": "median"}, 16.0),
        ({"aggregation": "trimmed-mean", "trim": 0.0}, 20.0),
        ({"lr": 0.5}, 14.0),
        ({"aggregation": "median", "lr": 2.0}, 22.0),
        ({"optimizer": "momentum", "optimizer_lr": 0.5}, 14.0),  # 10 + 0.5 * (18 - 10)
        ({"aggregation": "median", "optimizer": "momentum", "optimizer_lr": 0.5}, 13.0),
    ],
)
def test_a_round_of_the_server(table, expected):
    server = replace(START, state={"own": torch.tensor(5.0)})
    updates = [
        Update(client, {"w": torch.tensor(value), "buffer": torch.tensor(3.0)}, examples=1, steps=1, share=share)
        for client, (value, share) in enumerate([(12.0, 0.5), (16.0, 0.25), (32.0, 0.25)])
    ]
    after = aggregate(ServerSettings(**table), Algorithm(), server, updates)
    assert {name: float(tensor) for name, tensor in after.weights.items()} == {"w": expected, "buffer": 3.0}
    assert (after.parameters, after.clients, after.state) == (server.parameters, server.clients, server.state)
    assert (after.optimizer != {}) == ("optimizer" in table)


def test_a_method_may_aggregate_in_its_own_way():
    class Doubled(Algorithm):
        def aggregate(self, server, updates):
            return replace(server, weights={name: 2 * tensor for name, tensor in updates[0].weights.items()})

    update = Update(0, START.weights, examples=1, steps=1, share=1.0)
    assert float(aggregate(ServerSettings(), Doubled(), START, [update]).weights["w"]) == 20.0


def test_the_median_by_hand():
    # By coordinate: 1, 2, 3, 50, 100 -> 3; six values 1, 2, 3, 5, 50, 100 -> (3 + 5) / 2. Counters come from the first.
    values = [1.0, 100.0, 2.0, 50.0, 3.0]
    weights = [{"w": torch.tensor([value, -value]), "n": torch.tensor(k)} for k, value in enumerate(values)]
    settings = ServerSettings(aggregation="median")
    found = robust_average(settings, weights)
    assert torch.equal(found["w"], torch.tensor([3.0, -3.0]))
    assert int(found["n"]) == 0
    even = robust_average(settings, [*weights, {"w": torch.tensor([5.0, -5.0]), "n": torch.tensor(9)}])
    assert torch.equal(even["w"], torch.tensor([4.0, -4.0]))


@pytest.mark.parametrize(
    ("trim", "values", "expected"),
    [
        (0.2, [0, 100, 1, 6, 2], 3),  # one is cut off at either end: (1 + 2 + 6) / 3
        (0.0, [0, 100, 1, 6, 3], 22),
        (0.4, [0, 100, 1, 6, 2], 2),  # two at either end
        (0.45, [0, 5, 100], 5),  # never all of them: one instead of two
        (0.2, [0, 1, 2, 3, 4, 6, 8, 9, 80, 90], 32 / 6),
        (0.28, [*range(18), *range(100, 107)], 12),  # 0.28 * 25 is a little more than 7 in floating point: 7 to 17
    ],
)
def test_the_trimmed_mean_by_hand(trim, values, expected):
    weights = [{"w": torch.tensor([float(value)])} for value in values]
    found = robust_average(ServerSettings(aggregation="trimmed-mean", trim=trim), weights)
    torch.testing.assert_close(found["w"], torch.tensor([float(expected)]))


def points(*values):
    return [{"w": torch.tensor(value)} for value in values]


def test_krum_by_hand():
    # Of 0, 1, 2, 3, 100 one is faulty, so two neighbors count: 1+4, 1+1, 1+1, 4+1, 97^2+98^2. 100 goes.
    weights = points([100.0], [0.0], [1.0], [2.0], [3.0])
    assert krum_shares(squared_distances(weights), 0.2) == [0.0, 0.25, 0.25, 0.25, 0.25]
    assert torch.equal(robust_average(ServerSettings(aggregation="krum", trim=0.2), weights)["w"], torch.tensor([1.5]))
    # Seven updates, two faulty ones that agree: three neighbors count, and the other faulty one is one of them.
    # 0: 1+4+9 = 14, 1: 1+1+4 = 6, 2: 1+1+4 = 6, 3: 1+1+4 = 6, 4: 1+4+9 = 14; 50: 0 + 46^2 + 47^2, twice.
    weights = points([50.0], [50.0], [0.0], [1.0], [2.0], [3.0], [4.0])
    assert krum_shares(squared_distances(weights), 0.25) == [0.0, 0.0, 0.2, 0.2, 0.2, 0.2, 0.2]
    # Never more than n > 2 f + 2 allows: of four none is faulty, however many are expected.
    assert krum_shares(squared_distances(points([9.0], [0.0], [1.0], [2.0])), 0.4) == [0.25] * 4


@pytest.mark.parametrize(
    ("count", "percent", "faulty"), [(5, 20, 1), (7, 25, 2), (10, 20, 2), (12, 10, 2), (12, 30, 4)]
)
@pytest.mark.parametrize("seed", range(10))
def test_krum_is_the_naive_one(count, percent, faulty, seed):
    generator = torch.Generator().manual_seed(seed)
    distances = squared_distances([{"w": torch.randn(2, generator=generator)} for _ in range(count)])
    rows = enumerate(distances.tolist())
    scores = [sum(sorted(row[:number] + row[number + 1 :])[: count - faulty - 2]) for number, row in rows]
    chosen = sorted(range(count), key=scores.__getitem__)[: count - faulty]
    expected = [1 / len(chosen) if number in chosen else 0.0 for number in range(count)]
    assert krum_shares(distances, percent / 100) == expected


def test_of_equal_scores_krum_takes_the_first():
    assert krum_shares(torch.zeros(20, 20, dtype=torch.float64), 0.2) == [1 / 16] * 16 + [0.0] * 4


def test_the_geometric_median_does_not_depend_on_the_unit():
    distances = squared_distances(points([0.0, 0.0], [5.0, 1.0], [2.0, 7.0], [50.0, 40.0]))
    shares = geometric_median_shares(distances)
    assert shares != pytest.approx([0.25] * 4, abs=0.05)
    for factor in (1e-12, 1e12):
        assert geometric_median_shares(factor * distances) == pytest.approx(shares, rel=1e-5)


def test_the_distances_by_hand():
    weights = [
        {"a": torch.tensor([0.0, 3.0]), "n": torch.tensor(1), "b": torch.tensor(1.0)},
        {"a": torch.tensor([4.0, 0.0]), "n": torch.tensor(9), "b": torch.tensor(1.0)},
        {"a": torch.tensor([0.0, 3.0]), "n": torch.tensor(5), "b": torch.tensor(3.0)},
    ]
    assert squared_distances(weights).tolist() == [[0.0, 25.0, 4.0], [25.0, 0.0, 29.0], [4.0, 29.0, 0.0]]


@pytest.mark.parametrize(
    ("values", "median"),
    [
        ([[0.0], [1.0], [100.0]], [1.0]),  # on a line: the median
        ([[0.0, 0.0], [1.0, 0.0], [0.5, 0.75**0.5]], [0.5, 0.75**0.5 / 3]),  # equal sides: the center
        ([[-1.0, 0.0], [3.0, 0.0], [0.0, -1.0], [0.0, 5.0]], [0.0, 0.0]),  # where the diagonals meet
        ([[0.0], [2.0], [4.0], [4.0], [1e6]], [4.0]),
    ],
)
def test_the_geometric_median_by_hand(values, median):
    found = robust_average(ServerSettings(aggregation="geometric-median"), points(*values))["w"]
    torch.testing.assert_close(found, torch.tensor(median), atol=2e-3, rtol=0)


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "krum", "geometric-median"])
def test_robust_rules_of_one_two_and_equal_updates(rule):
    settings = ServerSettings(aggregation=rule, trim=0.3)
    assert torch.equal(robust_average(settings, points([1.0, 7.0]))["w"], torch.tensor([1.0, 7.0]))
    assert torch.equal(robust_average(settings, points([1.0], [4.0]))["w"], torch.tensor([2.5]))
    for count in (2, 3, 5, 8):
        same = robust_average(settings, points(*[[0.3, -7.1]] * count))["w"]
        torch.testing.assert_close(same, torch.tensor([0.3, -7.1]))


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "krum", "geometric-median"])
def test_robust_rules_survive_a_third_of_the_updates_far_away(rule):
    generator = torch.Generator().manual_seed(0)
    honest = [{"w": torch.randn(50, generator=generator)} for _ in range(8)]
    far = [{"w": 1e4 + torch.randn(50, generator=generator)} for _ in range(3)]
    found = robust_average(ServerSettings(aggregation=rule, trim=0.3), [*far, *honest])["w"]
    assert float(found.norm()) < 20  # three of eleven at 1e4 would make a mean of norm 19,000
    assert torch.equal(found, robust_average(ServerSettings(aggregation=rule, trim=0.3), [*far, *honest])["w"])


@given(
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=9),
    st.sampled_from(["median", "trimmed-mean", "krum", "geometric-median"]),
)
def test_robust_averages_lie_between_the_values_and_do_not_depend_on_their_order(values, kind):
    settings = ServerSettings(aggregation=kind, trim=0.2)
    found = robust_average(settings, [{"w": torch.tensor([value])} for value in values])["w"]
    again = robust_average(settings, [{"w": torch.tensor([value])} for value in reversed(values)])["w"]
    assert min(values) - 1e-4 <= float(found) <= max(values) + 1e-4
    if kind != "krum":  # of two with the same score the first is chosen
        torch.testing.assert_close(found, again, atol=1e-3, rtol=1e-4)
