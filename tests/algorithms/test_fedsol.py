"""FedSOL by hand (the perturbation for each strength is in test_gradients)."""

import math
from math import exp, log, sqrt

import pytest
import torch

from fedsol.algorithms import find_algorithm, make_algorithm
from fedsol.algorithms.fedsol import FedSOL
from fedsol.config.catalog import ALGORITHMS
from fedsol.config.experiment import Experiment
from fedsol.data.batches import Batch
from fedsol.errors import InputError
from fedsol.federation.federation import build_federation
from tests.support.one_weight_per_logit import close, column, step
from tests.support.toys import OnlyHead, split, task_for


def sigmoid(x):
    return 1 / (1 + exp(-x))


@pytest.mark.parametrize(
    ("strength", "difference"),
    [
        # w = (3, 4), a = 0, L2: g_p = (3, 4), ||g_p|| = 5. rho = 5: eps = (3, 4), the logits are 6 and 8.
        ("fixed", -2.0),
        # Lambda = (3, 4) / 5: eps = (9/5, 16/5), the logits 4.8 and 7.2.
        ("adaptive", -2.4),
        # One column: the same norm as over the tensor.
        ("adaptive-column", -2.4),
    ],
)
@pytest.mark.parametrize("perturb", ["all", "head"])
def test_a_step_with_l2(strength, difference, perturb):
    table = {"name": "fedsol", "rho": 5.0, "strength": strength, "perturb": perturb, "proximal": "l2"}
    p = sigmoid(difference)
    close(step(table, column(0, 0), column(3, 4)), column(p - 1, 1 - p))


def test_the_default_strength_is_that_of_every_method_that_perturbs():
    assert FedSOL().strength == "adaptive-column"
    found = {name: find_algorithm(name)().strength for name in ALGORITHMS if hasattr(find_algorithm(name), "strength")}
    proximal = {"fedprox", "fednova", "scaffold", "fedntd", "feddyn", "moon"}
    assert found == dict.fromkeys({*proximal, "fedsol", "fedsol-ablation", "perturbed"}, "adaptive-column")


@pytest.mark.parametrize(
    ("table", "difference"),
    [
        # a = 0, w = [[3, 5], [4, 12]], L2: g_p = w, ||g_p|| = sqrt(194) = rho, so eps = Lambda w. The input (1, 0) sees
        # the first column alone. Its norm is 5: Lambda is (3, 4) / 5, eps (9, 16) / 5, the logits 4.8 and 7.2.
        ({}, -2.4),
        # Over the tensor Lambda is (3, 4) / sqrt(194), eps (9, 16) / sqrt(194).
        ({"strength": "adaptive"}, -1 - 7 / sqrt(194)),
    ],
)
def test_by_default_lambda_is_taken_by_column(table, difference):
    task = task_for(split(OnlyHead(2, 2), (2,)), {"head.weight": torch.zeros(2, 2)})
    weights = {"head.weight": torch.tensor([[3.0, 5.0], [4.0, 12.0]])}
    batch = Batch(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    algorithm = make_algorithm({"name": "fedsol", "rho": sqrt(194), "proximal": "l2", **table})
    p = sigmoid(difference)
    found, _ = algorithm.gradient(task, weights, batch, {})
    torch.testing.assert_close(found["head.weight"], torch.tensor([[p - 1, 0.0], [1 - p, 0.0]]))


def test_a_step_with_kl():
    # a = 0, w = (3 ln 3, 0), tau = 3: g_p = (1/12, -1/12) (see test_gradients), so g_p / ||g_p|| = (1, -1) / sqrt(2).
    # rho = sqrt(2), fixed: eps = (1, -1): the logits differ by 3 ln 3 + 2.
    table = {"name": "fedsol", "rho": sqrt(2), "strength": "fixed", "tau": 3.0}
    p = sigmoid(3 * log(3) + 2)
    close(step(table, column(0, 0), column(3 * log(3), 0)), column(p - 1, 1 - p))


def test_the_same_loss_as_an_auxiliary_one():
    # g_l + beta g_p at w = (3 ln 3, 0): p = 27/28; g_p = (1/12, -1/12); beta = 6.
    found = step({"name": "fedsol", "usage": "auxiliary", "beta": 6.0}, column(0, 0), column(3 * log(3), 0))
    close(found, column(27 / 28 - 1 + 0.5, 1 / 28 - 0.5))


def only_a_classifier(classes, input_shape):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(math.prod(input_shape), classes))


def test_a_model_without_a_body_has_none_to_perturb():
    tables = {"data": {"name": "digits"}, "algorithm": {"name": "fedsol", "perturb": "body"}}
    with pytest.raises(InputError, match=r"algorithm\.perturb: 'body' is not allowed: the model has no weights but"):
        build_federation(Experiment(**tables, model={"name": f"{__file__}:only_a_classifier"}))
