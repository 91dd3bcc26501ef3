"""Losses and divergences of every kind of task, against numbers derived by hand and naive loops."""

import math

import pytest
import torch
import torch.nn.functional as F

from fedsol.config.task import DEFAULT_METRICS, LOSSES, MEASURES
from fedsol.objectives import OBJECTIVES
from fedsol.objectives.base import IGNORED

LOG2, LOG3 = math.log(2), math.log(3)


def objective(kind, classes, **options):
    measures = tuple(MEASURES[name] for name in DEFAULT_METRICS[kind])
    return OBJECTIVES[kind](classes, measures, options.pop("loss", LOSSES[kind][0]), **options)


def naive_kl(first, second, tau):
    """KL of two lists of logits, with plain sums."""
    p, q = ([math.exp(one / tau) for one in logits] for logits in (first, second))
    p, q = [one / sum(p) for one in p], [one / sum(q) for one in q]
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def test_kl_of_classes_by_hand():
    # softmax(log 3, 0) = (3/4, 1/4) against (1/2, 1/2): 3/4 log(3/2) + 1/4 log(1/2)
    anchor, outputs = torch.tensor([[LOG3, 0.0]]), torch.zeros(1, 2)
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    found = objective("classification", 2).divergence(anchor, outputs, torch.tensor([0]), 1.0)
    assert float(found) == pytest.approx(expected)
    assert expected == pytest.approx(naive_kl([LOG3, 0.0], [0.0, 0.0], 1.0))
    # At temperature 2, logits of 2 log 3 give the same.
    hot = objective("classification", 2).divergence(2 * anchor, outputs, torch.tensor([0]), 2.0)
    assert float(hot) == pytest.approx(expected)


def test_bernoulli_kl_by_hand():
    """Labels are independent: a sum over labels, a mean over samples."""
    # sigmoid(log 3) = 3/4 against 1/2, as above; a second label that agrees adds nothing; a second sample halves it.
    one = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    task = objective("multilabel", 2)
    anchor, outputs = torch.tensor([[LOG3, 5.0], [0.0, 0.0]]), torch.tensor([[0.0, 5.0], [0.0, 0.0]])
    assert float(task.divergence(anchor, outputs, torch.zeros(2, 2), 1.0)) == pytest.approx(one / 2)
    # Both labels apart: sigmoid(-log 3) = 1/4 against 1/2 costs the same.
    both = task.divergence(torch.tensor([[LOG3, -LOG3]]), torch.zeros(1, 2), torch.zeros(1, 2), 1.0)
    assert float(both) == pytest.approx(2 * one)


def test_bernoulli_kl_is_the_kl_of_two_classes():
    generator = torch.Generator().manual_seed(0)
    anchor, outputs = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    found = objective("multilabel", 3).divergence(anchor, outputs, torch.zeros(5, 3), 2.0)
    rows = zip(anchor.flatten().tolist(), outputs.flatten().tolist(), strict=True)
    assert float(found) == pytest.approx(sum(naive_kl([a, 0.0], [b, 0.0], 2.0) for a, b in rows) / 5)


def test_bernoulli_kl_of_sure_answers_is_finite():
    anchor = torch.tensor([[200.0]])
    far = objective("multilabel", 1).divergence(anchor, -anchor, torch.ones(1, 1), 1.0)
    assert float(far) == pytest.approx(200.0)


def test_gaussian_distance_by_hand():
    # (3^2 + 4^2) / (2 · 5^2) = 1/2 for the first sample, 0 for the second.
    anchor, outputs = torch.tensor([[3.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.0, 4.0], [1.0, 1.0]])
    found = objective("regression", 2).divergence(anchor, outputs, torch.zeros(2, 2), 5.0)
    assert float(found) == pytest.approx(0.25)
    normal = torch.distributions.Normal
    apart = torch.distributions.kl_divergence(normal(anchor, 5.0), normal(outputs, 5.0)).sum(dim=1).mean()
    assert float(found) == pytest.approx(float(apart))


def test_kl_per_pixel_leaves_ignored_pixels_out():
    generator = torch.Generator().manual_seed(1)
    anchor, outputs = torch.randn(2, 2, 3, 2, 2, generator=generator, dtype=torch.float64)  # (N, classes, H, W)
    targets = torch.tensor([[[0, 1], [2, IGNORED]], [[IGNORED, 1], [0, 0]]])
    pixels = [(n, i, j) for n in range(2) for i in range(2) for j in range(2) if targets[n, i, j] != IGNORED]
    expected = [naive_kl(anchor[n, :, i, j].tolist(), outputs[n, :, i, j].tolist(), 3.0) for n, i, j in pixels]
    task = objective("segmentation", 3)
    assert float(task.divergence(anchor, outputs, targets, 3.0)) == pytest.approx(sum(expected) / 6)
    losses = [-outputs[n, :, i, j].log_softmax(0)[targets[n, i, j]] for n, i, j in pixels]
    assert float(task.loss(outputs, targets)) == pytest.approx(float(sum(losses)) / 6)
    assert float(task.total_loss(outputs, targets)) == pytest.approx(float(sum(losses)))
    counts = task.count(outputs, targets)
    assert counts.examples.tolist() == [3, 2, 1]
    right = [int(outputs[n, :, i, j].argmax() == targets[n, i, j]) for n, i, j in pixels]
    assert int(counts.correct.sum()) == sum(right)


def test_kl_per_token_leaves_ignored_tokens_out():
    generator = torch.Generator().manual_seed(2)
    anchor, outputs = torch.randn(2, 2, 3, 5, generator=generator, dtype=torch.float64)  # (N, T, vocabulary)
    targets = torch.tensor([[4, 0, IGNORED], [1, IGNORED, IGNORED]])
    tokens = [(0, 0), (0, 1), (1, 0)]
    expected = [naive_kl(anchor[place].tolist(), outputs[place].tolist(), 1.5) for place in tokens]
    task = objective("next-token", 5)
    assert float(task.divergence(anchor, outputs, targets, 1.5)) == pytest.approx(sum(expected) / 3)
    losses = [-outputs[place].log_softmax(0)[targets[place]] for place in tokens]
    assert float(task.loss(outputs, targets)) == pytest.approx(float(sum(losses)) / 3)
    assert int(task.count(outputs, targets).examples.sum()) == 3


DIVERGING = [
    ("classification", (4, 3), torch.tensor([0, 1, 2, 0])),
    ("multilabel", (4, 3), torch.ones(4, 3)),
    ("regression", (4, 3), torch.ones(4, 3)),
    ("segmentation", (2, 3, 2, 2), torch.tensor([[[0, 1], [2, IGNORED]]] * 2)),
    ("next-token", (2, 4, 3), torch.tensor([[0, 1, 2, IGNORED]] * 2)),
]


@pytest.mark.parametrize(("kind", "shape", "targets"), DIVERGING, ids=[case[0] for case in DIVERGING])
def test_a_divergence_is_0_with_gradient_0_at_the_anchor_and_positive_elsewhere(kind, shape, targets):
    task = objective(kind, 3)
    anchor = torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    outputs = anchor.clone().requires_grad_()
    value = task.divergence(anchor, outputs, targets, 2.0)
    (gradient,) = torch.autograd.grad(value, outputs)
    assert float(value.detach()) == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient))
    assert float(task.divergence(anchor, anchor + torch.randn_like(anchor), targets, 2.0)) > 0


@pytest.mark.parametrize(("kind", "shape", "targets"), DIVERGING, ids=[case[0] for case in DIVERGING])
def test_the_summed_loss_is_the_mean_times_the_answers(kind, shape, targets):
    task = objective(kind, 3)
    outputs = torch.randn(shape, generator=torch.Generator().manual_seed(4))
    answers = int(task.count(outputs, targets).examples.sum())
    assert float(task.total_loss(outputs, targets)) == pytest.approx(float(task.loss(outputs, targets)) * answers)


def test_losses_by_hand():
    row, target = torch.tensor([[2.0, -0.5]]), torch.tensor([[0.0, 0.0]])
    assert float(objective("regression", 2).loss(row, target)) == pytest.approx((4 + 0.25) / 2)
    assert float(objective("regression", 2, loss="absolute-error").loss(row, target)) == pytest.approx(2.5 / 2)
    # Huber: |x| - 1/2 beyond 1, x^2 / 2 below.
    assert float(objective("regression", 2, loss="huber").loss(row, target)) == pytest.approx((1.5 + 0.125) / 2)
    # One answer right with p = 3/4: log(4/3), and (1/4)^2 of it with focal loss.
    sure, label = torch.tensor([[LOG3, 0.0]]), torch.tensor([0])
    assert float(objective("classification", 2).loss(sure, label)) == pytest.approx(math.log(4 / 3))
    focal = objective("classification", 2, loss="focal")
    assert float(focal.loss(sure, label)) == pytest.approx(math.log(4 / 3) / 16)
    # Labels there with p = 3/4 and not there with p = 1/2.
    labels = objective("multilabel", 2).loss(torch.tensor([[LOG3, 0.0]]), torch.tensor([[1.0, 0.0]]))
    assert float(labels) == pytest.approx((math.log(4 / 3) + LOG2) / 2)


def test_class_weights_by_hand():
    # Two answers with losses log(4/3) (class 0, weight 1) and log 4 (class 1, weight 3): a weighted mean.
    outputs, labels = torch.tensor([[LOG3, 0.0], [LOG3, 0.0]]), torch.tensor([0, 1])
    expected = (math.log(4 / 3) + 3 * math.log(4)) / 4
    for kind, shaped in (("classification", (outputs, labels)), ("next-token", (outputs[None], labels[None]))):
        weighted = objective(kind, 2, class_weights=(1.0, 3.0))
        assert float(weighted.loss(*shaped)) == pytest.approx(expected)
        assert float(weighted.total_loss(*shaped)) == pytest.approx(math.log(4 / 3) + math.log(4))  # tests weigh alike
    focal = objective("classification", 2, loss="focal", class_weights=(1.0, 3.0))
    assert float(focal.loss(outputs, labels)) == pytest.approx((math.log(4 / 3) / 16 + 3 * math.log(4) * 9 / 16) / 4)
    # Of labels: the factor of a label that is there.
    several = objective("multilabel", 1, class_weights=(3.0,))
    assert float(several.loss(torch.zeros(2, 1), torch.tensor([[1.0], [0.0]]))) == pytest.approx((3 * LOG2 + LOG2) / 2)


def test_answers_in_the_units_of_the_task():
    regression = objective("regression", 2, target_mean=(10.0, 0.0), target_std=(2.0, 0.5))
    torch.testing.assert_close(regression.probabilities(torch.tensor([[1.0, -1.0]])), torch.tensor([[12.0, -0.5]]))
    axes = {"classification": ((2, 3), 1), "segmentation": ((2, 3, 4, 5), 1), "next-token": ((2, 4, 3), 2)}
    for kind, (shape, axis) in axes.items():
        probabilities = objective(kind, 3).probabilities(torch.randn(shape))
        torch.testing.assert_close(probabilities.sum(dim=axis), torch.ones_like(probabilities.select(axis, 0)))
    torch.testing.assert_close(objective("multilabel", 1).probabilities(torch.tensor([[LOG3]])), torch.tensor([[0.75]]))


def test_classification_is_cross_entropy_to_the_last_bit():
    outputs, labels = torch.randn(7, 4), torch.tensor([0, 1, 2, 3, 0, 1, 2])
    assert torch.equal(objective("classification", 4).loss(outputs, labels), F.cross_entropy(outputs, labels))


@pytest.mark.parametrize(("kind", "shape"), [("segmentation", (2, 3, 2, 2)), ("next-token", (2, 4, 3))])
def test_a_batch_without_targets_teaches_nothing(kind, shape):
    outputs = torch.randn(shape, requires_grad=True)
    targets = torch.full((2, 2, 2) if kind == "segmentation" else (2, 4), IGNORED)
    task = objective(kind, 3)
    for value in (task.loss(outputs, targets), task.divergence(outputs.detach(), outputs, targets, 1.0)):
        (gradient,) = torch.autograd.grad(value, outputs)
        assert float(value.detach()) == 0
        assert not gradient.any()
