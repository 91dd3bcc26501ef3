"""Metrics against scikit-learn or by hand, and that those of parts are those of the whole, bit for bit."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from fedsol.config.task import KINDS, MEASURES
from fedsol.objectives import OBJECTIVES
from fedsol.objectives.base import IGNORED
from fedsol.objectives.metrics import Scorer, Scores

GENERATOR = np.random.default_rng(0)


def scorer(kind, classes, names, **options):
    measures = tuple(MEASURES[name] for name in names)
    return Scorer(OBJECTIVES[kind](classes, measures, "", **options))


def values(kind, classes, names, outputs, targets, **options):
    found = scorer(kind, classes, names, **options)
    return found.values(found.total([found.batch(outputs, targets)]))


def test_classes_against_scikit_learn():
    logits, labels = GENERATOR.normal(size=(200, 4)), GENERATOR.integers(0, 4, 200)
    labels[:40] = 3  # classes of different sizes
    outputs, targets = torch.tensor(logits), torch.tensor(labels)
    names = ["balanced-accuracy", "macro-f1", "auroc", "brier", "confusion"]
    found = values("classification", 4, names, outputs, targets)
    probabilities, answers = outputs.softmax(dim=1).numpy(), logits.argmax(axis=1)
    assert found["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(labels, answers))
    assert found["macro_f1"] == pytest.approx(sk.f1_score(labels, answers, average="macro"))
    assert found["auroc"] == pytest.approx(sk.roc_auc_score(labels, probabilities, multi_class="ovr"), abs=1e-6)
    assert found["brier"] == pytest.approx(((probabilities - np.eye(4)[labels]) ** 2).sum(axis=1).mean())
    assert found["confusion"] == sk.confusion_matrix(labels, answers).tolist()


def test_two_classes_against_scikit_learn():
    logits, labels = GENERATOR.normal(size=(99, 2)), GENERATOR.integers(0, 2, 99)
    outputs = torch.tensor(logits)
    found = values("classification", 2, ["auroc", "brier"], outputs, torch.tensor(labels))
    positive = outputs.softmax(dim=1)[:, 1].numpy()
    assert found["auroc"] == pytest.approx(sk.roc_auc_score(labels, positive), abs=1e-6)
    assert found["brier"] == pytest.approx(2 * sk.brier_score_loss(labels, positive))  # over both classes


def test_labels_against_scikit_learn():
    logits, labels = GENERATOR.normal(size=(120, 3)), GENERATOR.integers(0, 2, (120, 3))
    found = values("multilabel", 3, ["macro-f1", "auroc", "brier"], torch.tensor(logits), torch.tensor(labels).float())
    assert found["macro_f1"] == pytest.approx(sk.f1_score(labels, logits > 0, average="macro"))
    assert found["auroc"] == pytest.approx(sk.roc_auc_score(labels, logits, average="macro"), abs=1e-6)
    probabilities = 1 / (1 + np.exp(-logits))
    assert found["brier"] == pytest.approx(((probabilities - labels) ** 2).sum(axis=1).mean())


def test_numbers_against_scikit_learn_in_the_units_of_the_data():
    targets = GENERATOR.normal(size=(80, 2))
    answers = targets + 0.5 * GENERATOR.normal(size=(80, 2))
    mean, std = (100.0, -3.0), (20.0, 0.1)
    found = values(
        "regression",
        2,
        ["mae", "rmse", "r2"],
        torch.tensor(answers),
        torch.tensor(targets),
        target_mean=mean,
        target_std=std,
    )
    truth, guess = targets * std + mean, answers * std + mean
    assert found["mae"] == pytest.approx(sk.mean_absolute_error(truth, guess))
    assert found["rmse"] == pytest.approx(math.sqrt(sk.mean_squared_error(truth, guess)))
    assert found["r2"] == pytest.approx(sk.r2_score(truth, guess))


def test_a_single_number_against_scikit_learn():
    targets = GENERATOR.normal(size=(50, 1))
    answers = targets + GENERATOR.normal(size=(50, 1))
    found = values("regression", 1, ["r2", "rmse"], torch.tensor(answers), torch.tensor(targets))
    assert found["r2"] == pytest.approx(sk.r2_score(targets, answers))
    assert found["rmse"] == pytest.approx(sk.root_mean_squared_error(targets, answers))


def one_hot(labels, classes=3):
    """Outputs (N, classes, H, W) that answer with these labels."""
    return 9.0 * torch.nn.functional.one_hot(labels, classes).movedim(-1, 1).double()


def test_dice_and_iou_by_hand():
    targets = torch.tensor([[[0, 0], [1, 1]], [[2, IGNORED], [0, 1]]])
    answers = torch.tensor([[[0, 1], [1, 1]], [[2, 2], [0, 0]]])
    # Class 0: 2 shared, 1 false, 1 missed. Class 1: 2, 1, 1. Class 2: 1, 0, 0; the ignored pixel does not count.
    found = values("segmentation", 3, ["iou", "dice", "confusion"], one_hot(answers), targets)
    assert found["iou"] == pytest.approx((2 / 4 + 2 / 4 + 1) / 3)
    assert found["dice"] == pytest.approx((4 / 6 + 4 / 6 + 1) / 3)
    assert found["confusion"] == [[2, 1, 0], [1, 2, 0], [0, 0, 1]]


def test_expected_calibration_error_by_hand():
    # Confidences 0.9 (right, wrong) and 0.6 (right): bins with gaps |0.9 - 1/2| and |0.6 - 1|, weighted 2/3 and 1/3.
    outputs = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4]]).log()
    found = values("classification", 2, ["ece"], outputs, torch.tensor([0, 1, 0]))
    assert found["ece"] == pytest.approx(2 / 3 * 0.4 + 1 / 3 * 0.4)


def test_perplexity_is_the_exponential_of_the_mean_cross_entropy():
    outputs, targets = torch.randn(3, 4, 5), torch.tensor([[0, 1, 2, IGNORED], [4, 4, IGNORED, IGNORED], [3, 0, 1, 2]])
    found = values("next-token", 5, ["perplexity"], outputs, targets)
    loss = torch.nn.functional.cross_entropy(outputs.double().flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    assert found["perplexity"] == pytest.approx(math.exp(loss))
    uniform = values("next-token", 5, ["perplexity"], torch.zeros(3, 4, 5), targets)
    assert uniform["perplexity"] == pytest.approx(5.0)


def test_what_the_answers_do_not_define_is_left_out():
    one_class = torch.tensor([1, 1, 1])
    outputs = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    found = values("classification", 3, ["auroc", "balanced-accuracy"], outputs, one_class)
    assert found == {"auroc": None, "balanced_accuracy": pytest.approx(2 / 3)}
    # The class that does not occur counts for neither; the AUROC of the others is that of scikit-learn.
    labels = torch.tensor([0, 1, 0])
    found = values("classification", 3, ["auroc"], outputs, labels)
    ranks = outputs.softmax(dim=1)
    expected = [sk.roc_auc_score(labels == c, ranks[:, c]) for c in (0, 1)]
    assert found["auroc"] == pytest.approx(np.mean(expected))
    # One sample has no variance, a label that is always there no negatives.
    assert values("regression", 1, ["r2"], torch.zeros(1, 1), torch.ones(1, 1)) == {"r2": None}
    labels = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    found = values("multilabel", 2, ["auroc"], torch.tensor([[0.0, -1.0], [1.0, 1.0]]), labels)
    assert found["auroc"] == pytest.approx(1.0)


SHAPES = {
    "classification": (4,),
    "multilabel": (4,),
    "regression": (4,),
    "segmentation": (4, 2, 3),
    "next-token": (3, 4),
}


def random_batch(kind, count, generator):
    outputs = torch.randn(count, *SHAPES[kind], generator=generator)
    if kind == "multilabel":
        return outputs, (torch.rand(outputs.shape, generator=generator) < 0.4).float()
    if kind == "regression":
        return outputs, torch.randn(outputs.shape, generator=generator)
    shape = {"classification": (), "segmentation": (2, 3), "next-token": (3,)}[kind]
    targets = torch.randint(4, (count, *shape), generator=generator)
    if kind != "classification":
        targets[torch.rand(targets.shape, generator=generator) < 0.2] = IGNORED
        targets[:, 0] = 1  # no batch without a target
    return outputs, targets


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    cuts=st.sets(st.integers(1, 7)),
    seed=st.integers(0, 2**32),
)
def test_the_scores_of_parts_are_those_of_the_whole_bit_for_bit(kind, sizes, cuts, seed):
    """A test set is split between batches; the parts' scores, added in order, are the whole's, to the last bit."""
    generator = torch.Generator().manual_seed(seed)
    found = scorer(kind, 4, [m.name for m in MEASURES.values() if kind in m.kinds and m.name != "accuracy"])
    batches = [found.batch(*random_batch(kind, size, generator)) for size in sizes]
    whole = found.total(batches)
    edges = [0, *sorted(cut for cut in cuts if cut < len(batches)), len(batches)]
    parts = [found.total(batches[start:stop]) for start, stop in itertools.pairwise(edges)]
    added = parts[0]
    for part in parts[1:]:
        added = added + part
    assert added.added.keys() == whole.added.keys()
    assert all(torch.equal(added.added[name], tensor) for name, tensor in whole.added.items())
    assert all(torch.equal(added.lined_up[name], tensor) for name, tensor in whole.lined_up.items())
    assert repr(found.values(added)) == repr(found.values(whole))


def test_nothing_to_score_is_no_score():
    assert scorer("classification", 2, ["accuracy"]).total([]) == Scores()
