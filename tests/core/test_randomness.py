"""Randomness is a function of its key."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsol.core.randomness import generator_for, key_for, numpy_generator_for, seeded_torch

KEYS = st.tuples(st.integers(0, 2**40), st.sampled_from(["client", "sampling"]), st.integers(0, 10**6))


@given(KEYS, KEYS)
def test_keys_differ_exactly_when_their_parts_do(one, other):
    assert (key_for(*one) == key_for(*other)) == (one == other)


def test_a_key_is_the_same_on_every_platform_and_in_every_version():
    assert key_for(0, "client", 1, 2) == 4424268767122085852


def test_parts_do_not_run_into_each_other():
    assert key_for(0, 1, 23) != key_for(0, 12, 3)
    assert key_for(0, "1") != key_for(0, 1)


def test_generators_draw_alike_for_like_keys():
    assert torch.equal(torch.rand(4, generator=generator_for(1, 2)), torch.rand(4, generator=generator_for(1, 2)))
    assert not torch.equal(torch.rand(4, generator=generator_for(1, 2)), torch.rand(4, generator=generator_for(2, 2)))
    assert numpy_generator_for(3, "x").random() == numpy_generator_for(3, "x").random()


def test_seeding_torch_puts_the_global_state_back():
    before = torch.get_rng_state()
    with seeded_torch(5):
        first = torch.rand(3)
    with seeded_torch(5):
        second = torch.rand(3)
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
