"""Arithmetic on named tensors, checked against the same arithmetic on one flat vector."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsol.core import weights as W

SHAPES = st.lists(st.sampled_from([(), (1,), (3,), (2, 2), (2, 3, 1)]), min_size=1, max_size=4)


@st.composite
def pairs(draw, count=2):
    """Several dicts of the same names and shapes."""
    shapes, seed = draw(SHAPES), draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    return [
        {f"t{i}": torch.randn(shape, generator=generator, dtype=torch.float64) for i, shape in enumerate(shapes)}
        for _ in range(count)
    ]


def flat(weights):
    return torch.cat([tensor.flatten() for tensor in weights.values()])


@given(pairs(), st.floats(-10, 10))
def test_add_subtract_scale_are_those_of_the_flat_vector(both, factor):
    left, right = both
    torch.testing.assert_close(flat(W.add(left, right, factor)), flat(left) + factor * flat(right))
    torch.testing.assert_close(flat(W.subtract(left, right)), flat(left) - flat(right))
    torch.testing.assert_close(flat(W.scale(left, factor)), factor * flat(left))


@given(pairs())
def test_dot_and_norm_are_those_of_the_flat_vector(both):
    left, right = both
    torch.testing.assert_close(W.dot(left, right), flat(left) @ flat(right))
    torch.testing.assert_close(W.norm(left), flat(left).norm())
    assert torch.equal(W.norm({}), torch.tensor(0.0))


@given(pairs(3), st.tuples(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(0.01, 1)))
def test_mean_is_the_weighted_sum_and_lies_between_its_inputs(three, parts):
    shares = [part / sum(parts) for part in parts]
    found = flat(W.mean(three, shares))
    stacked = torch.stack([flat(weights) for weights in three])
    torch.testing.assert_close(found, (torch.tensor(shares, dtype=torch.float64)[:, None] * stacked).sum(0))
    assert bool((found <= stacked.amax(0) + 1e-12).all())
    assert bool((found >= stacked.amin(0) - 1e-12).all())


@given(pairs())
def test_no_function_changes_its_arguments(both):
    before = [W.clone(weights) for weights in both]
    W.add(*both)
    W.subtract(*both)
    W.scale(both[0], 2.0)
    W.mean(both, [0.5, 0.5])
    assert all(W.equal(one, other) for one, other in zip(both, before, strict=True))


def test_the_mean_of_one_is_bitwise_itself():
    weights = {"a": torch.randn(5), "count": torch.tensor(7)}
    assert W.equal(W.mean([weights], [1.0]), weights)


def test_counters_are_copied_from_the_first():
    found = W.mean([{"count": torch.tensor(3)}, {"count": torch.tensor(9)}], [0.5, 0.5])
    assert int(found["count"]) == 3


@pytest.mark.parametrize("shares", [[], [1.0]])
def test_mean_needs_a_share_for_each(shares):
    with pytest.raises(ValueError, match="shares: must be one for each"):
        W.mean([{"a": torch.ones(1)}, {"a": torch.ones(1)}], shares)


def test_add_leaves_names_that_the_step_lacks():
    weights = {"a": torch.ones(2), "b": torch.ones(2)}
    found = W.add(weights, {"a": torch.ones(2)}, 2.0)
    assert torch.equal(found["a"], torch.full((2,), 3.0))
    assert found["b"] is weights["b"]


def test_prefixes_come_off_as_they_went_on():
    weights = {"body.weight": torch.ones(2), "head.bias": torch.zeros(1)}
    state = {**W.prefixed("control", weights), **W.prefixed("other", weights)}
    assert W.equal(W.without_prefix("control", state), weights)
    assert W.without_prefix("missing", state) == {}


def test_zeros_have_the_shapes_and_the_precision():
    found = W.zeros({"a": torch.ones(3, 2, dtype=torch.float64), "b": torch.tensor(5)})
    assert torch.equal(found["a"], torch.zeros(3, 2, dtype=torch.float64))
    assert torch.equal(found["b"], torch.tensor(0))


def test_tensors_move_to_a_device_and_stay_where_they_are_there():
    weights = {"a": torch.ones(2)}
    assert W.on_device(weights, torch.device("cpu"))["a"] is weights["a"]
    assert W.on_device(weights, torch.device("meta"))["a"].is_meta


def test_size_in_bytes():
    assert W.size_in_bytes({"a": torch.zeros(3, 2), "b": torch.zeros(1, dtype=torch.int64)}) == 6 * 4 + 8


def test_clipping_by_hand():
    # The change (6, 8) has length 10: cut to 5 it is (3, 4). What the anchor lacks (a buffer) is not touched.
    anchor = {"w": torch.tensor([3.0, 4.0])}
    after = {"w": torch.tensor([9.0, 12.0]), "mean": torch.tensor([1.0])}
    clipped = W.clip_change(after, anchor, 5.0)
    torch.testing.assert_close(clipped["w"], torch.tensor([6.0, 8.0]))
    assert clipped["mean"] is after["mean"]
    assert W.clip_change(after, anchor, 10.0) is after
