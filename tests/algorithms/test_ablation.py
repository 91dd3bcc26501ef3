"""The objectives A0 to A6 by hand."""

from math import exp
from typing import get_args

import pytest
import torch

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.ablation import Strategy
from fedsol.core.weights import equal
from tests.support.one_weight_per_logit import close, column, step
from tests.support.toys import TwoLayers, moved_from, random_batch, split, task_for


def local(*logits):
    """Gradient of the local loss at two logits."""
    p = 1 / (1 + exp(logits[1] - logits[0]))
    return (p - 1, 1 - p)


def total(local_gradient, proximal, beta):
    return column(*(g + beta * p for g, p in zip(local_gradient, proximal, strict=True)))


# w = (3, 4), a = 0, L2, fixed, rho = 5: g_p = (3, 4), e_p = (3, 4), w + e_p = (6, 8), where g_p = (6, 8). beta = 2.
W, MOVED = (3.0, 4.0), (6.0, 8.0)
EXPECTED = {
    "A0": total(local(*W), (0, 0), 0),
    "A1": total(local(*MOVED), (0, 0), 0),
    "A2": total(local(*W), MOVED, 2),
    "A3": total(local(*MOVED), MOVED, 2),
    "A5": total(local(*W), W, 1),
    "A6": total(local(*MOVED), W, 2),
}


def test_a1_is_fedsol_by_default():
    model = split(TwoLayers(bias=True), (2,))
    anchor = model.initial_weights()
    task, weights, batch = task_for(model, anchor), moved_from(anchor), random_batch((2,), 2)
    own = make_algorithm({"name": "fedsol-ablation"}).gradient(task, weights, batch, {})
    fedsol = make_algorithm({"name": "fedsol"}).gradient(task, weights, batch, {})
    assert equal(own[0], fedsol[0])
    assert torch.equal(own[1], fedsol[1])


def test_the_settings_of_a_perturbation_change_nothing_where_there_is_none():
    assert [
        strategy
        for strategy in get_args(Strategy)
        if make_algorithm({"name": "fedsol-ablation", "strategy": strategy}).settings_without_effect()
    ] == ["A0", "A5"]


@pytest.mark.parametrize("perturb", ["all", "head"])
@pytest.mark.parametrize("strategy", EXPECTED)
def test_a_step(strategy, perturb):
    table = {"name": "fedsol-ablation", "strategy": strategy, "beta": 2.0, "rho": 5.0, "strength": "fixed",
             "perturb": perturb, "proximal": "l2"}  # fmt: skip
    close(step(table, column(0, 0), column(*W)), EXPECTED[strategy])


def test_a_step_of_a4():
    # e_c = rho (g_l + g_p) / ||g_l + g_p|| with g_p = (3, 4); both losses at w + e_c, where g_p = w + e_c.
    first, second = (g + p for g, p in zip(local(*W), W, strict=True))
    length = (first**2 + second**2) ** 0.5
    moved = (3 + 5 * first / length, 4 + 5 * second / length)
    table = {"name": "fedsol-ablation", "strategy": "A4", "beta": 2.0, "rho": 5.0, "strength": "fixed",
             "perturb": "all", "proximal": "l2"}  # fmt: skip
    close(step(table, column(0, 0), column(*W)), total(local(*moved), moved, 2))
