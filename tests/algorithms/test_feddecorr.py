"""FedDecorr by hand."""

import pytest
import torch

import fedsol
from fedsol.algorithms.feddecorr import Decorrelation
from fedsol.algorithms.task import Outputs


def loss(*rows):
    features = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    value = Decorrelation().loss(Outputs(features, features), None)
    (gradient,) = torch.autograd.grad(value, features)
    assert torch.isfinite(gradient).all()
    return float(value.detach())


def test_the_mean_squared_correlation():
    # The second feature is 5 - 2 times the first: correlation -1. The third correlates with the first by 1/sqrt(3):
    # covariance 1/2, variances 1 and 3/4. K^2 = [[1, 1, 1/3], [1, 1, 1/3], [1/3, 1/3, 1]].
    rows = [(x, 5 - 2 * x, y) for x, y in [(-1, -1), (1, 1), (1, 1), (-1, 1)]]
    assert loss(*rows) == pytest.approx((5 + 4 / 3) / 9)


def test_a_feature_that_does_not_vary_and_a_batch_of_one():
    assert loss((1.0, 2.0), (1.0, 4.0)) == pytest.approx(1 / 4)
    assert loss((1.0, 2.0)) == 0


def test_features_of_a_reduced_pass_are_correlated_in_full_precision():
    features = torch.randn(50, 8).bfloat16()
    reduced, full = (Decorrelation().loss(Outputs(one, one), None) for one in (features, features.float()))
    assert reduced.dtype == torch.float32
    assert torch.equal(reduced, full)


def test_other_tasks_are_refused_by_name():
    with pytest.raises(
        fedsol.InputError, match=r"algorithm\.name: 'feddecorr' does not fit task.kind = 'segmentation'"
    ):
        fedsol.Experiment(algorithm={"name": "feddecorr"}, task={"kind": "segmentation"})
