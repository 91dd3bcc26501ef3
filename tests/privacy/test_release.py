"""A round's sum changes by at most the clipping norm with one client; its noise is as large as it says, and fresh."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsol.core.weights import norm, subtract
from fedsol.privacy.noise import from_system, secret_sample, simulated
from fedsol.privacy.release import ClippedSum, Noise, adapted, clipped_sum, noised_mean, noised_share

ANCHOR = {"a": torch.tensor([1.0, -2.0, 100.0]), "b": torch.tensor([[0.5]])}
NUMBERS = st.floats(-1e6, 1e6, width=32)


def weights(values):
    return {"a": torch.tensor(values[:3]), "b": torch.tensor([values[3:]])}


UPDATES = st.lists(st.lists(NUMBERS, min_size=4, max_size=4).map(weights), min_size=1, max_size=5)


@settings(deadline=None, max_examples=60)
@given(UPDATES, st.lists(NUMBERS, min_size=4, max_size=4).map(weights), st.floats(1e-6, 1e3))
def test_one_client_more_changes_the_sum_by_at_most_the_norm_and_another_by_twice(updates, other, clip_norm):
    whole = clipped_sum(ANCHOR, updates, clip_norm)
    without = clipped_sum(ANCHOR, updates[:-1], clip_norm)
    replaced = clipped_sum(ANCHOR, [*updates[:-1], other], clip_norm)
    close = 1 + 1e-9
    assert float(norm(subtract(whole.total, without.total))) <= clip_norm * close
    assert float(norm(subtract(whole.total, replaced.total))) <= 2 * clip_norm * close
    assert abs(whole.short - replaced.short) <= 1


def test_a_sum_by_hand():
    """Changes (3, 4) of length 5, clipped to 2; and (0.3, 0.4), which is short."""
    anchor = {"w": torch.tensor([1.0, 1.0]), "frozen": torch.tensor([7.0])}
    updates = [{"w": torch.tensor([4.0, 5.0])}, {"w": torch.tensor([1.3, 1.4])}]
    found = clipped_sum({"w": anchor["w"]}, updates, 2.0)
    torch.testing.assert_close(found.total["w"], torch.tensor([1.2 + 0.3, 1.6 + 0.4], dtype=torch.float64))
    assert (found.short, found.count) == (1, 2)
    mean = noised_mean(found, 2.0, Noise(0.5), 4, lambda shape: torch.ones(tuple(shape), dtype=torch.float64))
    torch.testing.assert_close(mean["w"], torch.tensor([(1.5 + 1) / 4, (2.0 + 1) / 4], dtype=torch.float64))


def test_the_noise_of_an_adaptive_norm_spends_the_same_budget():
    """Sum and count together are one Gaussian: 1 / multiplier² adds up, the count's sensitivity being one half."""
    noise = Noise(1.3, adaptive=True)
    assert 1 / noise.of_sum**2 + 0.5**2 / noise.of_count**2 == pytest.approx(1 / 1.3**2)
    assert Noise(1.3).of_sum == 1.3


def test_the_norm_follows_the_quantile():
    """Andrew et al., algorithm 1: all short and half wanted makes it exp(-0.2 x 0.5) times as large."""
    found = ClippedSum({}, short=4, count=4)
    share = noised_share(found, Noise(0.0, adaptive=True), 4, from_system)
    assert share == 1.0
    assert adapted(2.0, share, 0.5) == pytest.approx(2 * math.exp(-0.1))
    assert (adapted(2.0, -1e5, 0.5), adapted(2.0, 1e5, 0.5)) == (2 * math.e, 2 / math.e)  # a share that is all noise
    missing = noised_share(ClippedSum({}, short=1, count=2), Noise(0.0, adaptive=True), 4, from_system)
    assert missing == 0.5  # who did not answer counts neither way


def draws(draw, count=40_000):
    return draw([count])


@pytest.mark.parametrize("draw", [simulated(3, 1), from_system], ids=["simulated", "system"])
def test_noise_is_standard_normal(draw):
    values = draws(draw)
    assert values.dtype == torch.float64
    assert abs(float(values.mean())) < 0.03
    assert float(values.var()) == pytest.approx(1, abs=0.05)
    assert float((values.abs() < 1).double().mean()) == pytest.approx(0.6827, abs=0.02)
    assert float((values.abs() > 3).double().mean()) == pytest.approx(0.0027, abs=0.002)
    assert abs(float((values[::2] * values[1::2]).mean())) < 0.05
    assert draw([3, 5]).shape == (3, 5)
    assert draw([]).shape == ()


def test_noise_of_rounds_and_tensors_is_independent_and_repeatable_only_in_a_simulation():
    draw = simulated(3, 1)
    parts = [draw([20_000]), draw([20_000]), simulated(3, 2)([20_000]), simulated(4, 1)([20_000])]
    for number, one in enumerate(parts):
        for other in parts[:number]:
            assert abs(float((one * other).mean())) < 0.04
    assert torch.equal(parts[0], simulated(3, 1)([20_000]))
    assert not torch.equal(from_system([5]), from_system([5]))


def test_the_noise_of_a_mean_has_the_variance_that_was_asked_for():
    found = ClippedSum({"a": torch.zeros(30_000, dtype=torch.float64), "b": torch.zeros(2, 5_000)}, 0, 10)
    mean = noised_mean(found, 0.7, Noise(3.0), 10, simulated(0, 1))
    for tensor in mean.values():
        assert float(tensor.std()) == pytest.approx(3.0 * 0.7 / 10, rel=0.03)


def test_a_secret_sample():
    samples = [secret_sample(3, 50) for _ in range(5)]
    assert all(one == sorted(set(one)) and len(one) == 3 and one[0] >= 0 and one[-1] < 50 for one in samples)
    assert len({tuple(one) for one in samples}) > 1
