"""Divergence, adaptive strength and knowledge preservation, against numbers worked out by hand."""

from dataclasses import dataclass
from math import sqrt

import pytest
import torch

from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.fedavg import FedAvg
from fedsol.algorithms.fedprox import FedProx
from fedsol.algorithms.fedsol import FedSOL
from fedsol.analysis.base import Series
from fedsol.analysis.divergence import divergence
from fedsol.analysis.preservation import PreservationAnalysis, accuracy_of, forgetting
from fedsol.analysis.replay import LocalRound
from fedsol.analysis.strength import (
    LayerStrength,
    LayerStrengths,
    StrengthAnalysis,
    common_strength,
    own_strength,
    strengths,
)
from fedsol.core.messages import Job, ServerState, Update
from fedsol.federation.evaluation import Tally
from fedsol.federation.federation import build_federation


def updates_of(*weights):
    return [Update(client, {"a": torch.tensor(a), "b": torch.tensor(b)}, 1, 1) for client, (a, b) in enumerate(weights)]


def after(before, updates, number=1):
    return LocalRound(number, ServerState(before, (), 8), updates)


BEFORE = {"a": torch.zeros(2), "b": torch.zeros(1)}


def test_distances_of_two_clients():
    found = divergence(after(BEFORE, updates_of(([3.0, 0.0], [4.0]), ([0.0, 0.0], [0.0])), 7), ["a", "b"])
    assert found.round == 7
    assert found.clients == (0, 1)
    assert found.to_global == pytest.approx((5.0, 0.0))
    assert found.global_local == pytest.approx(2.5)
    assert found.between == pytest.approx((5.0, 5.0))
    assert found.local_local == pytest.approx(5.0)
    assert found.layers_to_global == pytest.approx({"a": 1.5, "b": 2.0})
    assert found.layers_between == pytest.approx({"a": 3.0, "b": 4.0})


def test_a_mean_over_pairs_does_not_count_a_client_with_itself():
    found = divergence(after(BEFORE, updates_of(([0.0, 0.0], [0.0]), ([1.0, 0.0], [0.0]), ([3.0, 0.0], [0.0]))), ["a"])
    assert found.local_local == pytest.approx((1 + 3 + 2) / 3)


def test_a_single_client_has_nobody_to_differ_from():
    found = divergence(after(BEFORE, updates_of(([1.0, 0.0], [0.0]))), ["a", "b"])
    assert found.between == ()
    assert found.local_local is None
    assert found.layers_between == {}


def test_small_distances_between_large_weights_are_exact():
    """The quick formula of distances, by products, would give 0 or noise here."""
    weights = [[[10_000.0, 0.0], [0.0]], [[10_000.0, 0.01], [0.0]]]
    assert divergence(after(BEFORE, updates_of(*weights)), ["a"]).local_local == pytest.approx(0.01, rel=1e-3)


def test_lambda_of_a_layer():
    before = {"a": torch.tensor([0.0, 0.0, 2.0, 0.0])}
    update = Update(3, {"a": torch.tensor([3.0, 0.0, 2.0, -4.0])}, 1, 1)
    layer = strengths(after(before, [update]), ["a"], "adaptive").layers["a"]
    assert layer.size == 4
    assert layer.mean == pytest.approx((0.6 + 0.8) / 4)
    assert layer.evenness == pytest.approx(0.7)
    assert layer.movement == pytest.approx(5 / 2)
    fixed = strengths(after(before, [update]), ["a"], "fixed").layers["a"]
    assert (fixed.mean, fixed.evenness) == (1.0, 1.0)
    # A vector is one column.
    assert strengths(after(before, [update]), ["a"], "adaptive-column").layers["a"] == layer


def test_lambda_of_a_layer_by_column():
    # Columns (3, 4), (5, 5) and (0, 0): Lambda is (0.6, 0.8), 1/sqrt(2) twice, and 0 twice. Two weights share a norm.
    before = {"a": torch.zeros(2, 3), "b": torch.tensor(1.0)}
    update = Update(0, {"a": torch.tensor([[3.0, 5.0, 0.0], [4.0, -5.0, 0.0]]), "b": torch.tensor(3.0)}, 1, 1)
    layers = strengths(after(before, [update]), ["a", "b"], "adaptive-column").layers
    mean = (0.6 + 0.8 + sqrt(2)) / 6
    assert (layers["a"].size, layers["a"].mean) == (6, pytest.approx(mean))
    assert layers["a"].evenness == pytest.approx(mean * sqrt(2))
    assert (layers["b"].mean, layers["b"].evenness, layers["b"].movement) == (1.0, 1.0, 2.0)
    even = Update(0, {"a": torch.ones(2, 3)}, 1, 1)
    for strength in ("adaptive", "adaptive-column"):
        assert strengths(after(before, [even]), ["a"], strength).layers["a"].evenness == pytest.approx(1.0)


@dataclass(frozen=True)
class OwnStrength(Algorithm):
    """A method of somebody's, whose setting of that name means something else."""

    strength: float = 0.5


def test_which_lambda_a_method_perturbs_with():
    assert own_strength(FedSOL()) == "adaptive-column"
    assert own_strength(FedSOL(strength="fixed")) == "fixed"
    assert own_strength(FedProx(usage="perturbed", strength="adaptive")) == "adaptive"
    assert [own_strength(method) for method in (FedAvg(), FedProx(strength="adaptive"), OwnStrength())] == [None] * 3


def test_one_lambda_for_several_methods():
    assert common_strength([]) == common_strength([FedAvg()]) == "adaptive-column"
    assert common_strength([FedAvg(), FedSOL(strength="adaptive"), FedSOL(rho=1.0, strength="adaptive")]) == "adaptive"
    assert common_strength([FedSOL(strength="adaptive"), FedSOL(strength="fixed")]) == "adaptive-column"


def test_a_layer_that_did_not_move_has_lambda_zero():
    before = {"a": torch.ones(3)}
    layer = strengths(after(before, [Update(0, {"a": torch.ones(3)}, 1, 1)]), ["a"], "adaptive").layers["a"]
    assert layer.mean == layer.movement == 0.0
    grown = strengths(after({"a": torch.zeros(1)}, updates_of(([1.0, 1.0], [1.0]))), ["a"], "adaptive").layers["a"]
    assert grown.movement is None  # relative to a length of 0


def test_accuracy_of_some_classes():
    tally = Tally((), (1, 3, 0), (2, 4, 0))
    assert accuracy_of(tally, [True, True, False]) == pytest.approx(4 / 6)
    assert accuracy_of(tally, [False, True, True]) == pytest.approx(3 / 4)
    assert accuracy_of(tally, [False, False, True]) is None


def test_preservation_is_what_evaluation_says(tiny):
    federation = build_federation(tiny.override({"client.epochs": 3}))
    initial = federation.initial_weights()
    updates = [federation.train(Job(client, 1, initial)) for client in (0, 2)]
    found = PreservationAnalysis().measure_round(federation, after(initial, updates))
    assert found.before == federation.evaluate(initial).accuracy
    assert found.after == tuple(federation.evaluate(update.weights).accuracy for update in updates)
    assert len(found.classes_after) == 10
    # held and absent classes together are all of the test set
    test = torch.bincount(federation.dataset.test.labels, minlength=10)
    labels = federation.dataset.train.labels[federation.partition[0]]
    held = int(test[labels.unique()].sum())
    share = held / int(test.sum())
    assert 0 < share < 1
    assert found.held_after[0] * share + found.absent_after[0] * (1 - share) == pytest.approx(found.after[0])
    assert found.held_after[0] > found.absent_after[0]


def test_forgetting_by_hand():
    table = [[0.5, 0.0], [0.9, 0.4], None, [0.3, 0.6]]
    rows = [{"round": number, "class_accuracy": row} for number, row in enumerate(table, 1)]
    found = forgetting(rows)
    assert found.rounds == (1, 2, 4)
    assert found.forgetting == pytest.approx((0.0, 0.0, (0.6 + 0.0) / 2))
    assert forgetting([]).rounds == ()


def test_a_class_without_test_examples_is_not_forgotten():
    rows = [{"round": 1, "class_accuracy": [0.8, None]}, {"round": 2, "class_accuracy": [0.6, None]}]
    assert forgetting(rows).forgetting == pytest.approx((0.0, 0.2))


def test_lambda_is_listed_layer_by_layer_unless_there_are_many():
    def seed(**means):
        layers = {name: LayerStrength(1, mean, 1.0, None) for name, mean in means.items()}
        return LayerStrengths(1, "adaptive", (0,), layers)

    def said(*seeds):
        return list(StrengthAnalysis().say([Series("a", seeds)]))

    two = seed(body=0.4, head=0.01234), seed(body=0.6, head=0.01234)
    assert said(*two) == ["a: mean Lambda head 0.0123, body 0.5"]
    many = {f"layer{number}": (number - 6) ** 2 / 100 for number in range(20)}
    assert said(seed(**many)) == ["a: mean Lambda layer6 0 to layer19 1.69"]
