"""MOON by hand."""

from math import log
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.moon import PREVIOUS
from fedsol.algorithms.proximal import Contrastive
from fedsol.algorithms.task import Outputs
from fedsol.core.weights import norm, prefixed, without_prefix
from fedsol.data.batches import Batch
from tests.support.toys import WithBatchNorm, moved_from, random_batch, split, task_for


class FeaturesAreWeights(nn.Module):
    """With input 1 the features are the body's weights; the head starts at 0."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(1, 2, bias=False)
        self.head = nn.Linear(2, 2, bias=False)
        nn.init.zeros_(self.head.weight)

    def forward(self, inputs):
        return self.head(self.body(inputs))


def weights(first, second):
    body = torch.tensor([[first], [second]], dtype=torch.float64)
    return {"body.weight": body, "head.weight": torch.zeros(2, 2, dtype=torch.float64)}


BATCH = Batch(torch.ones(1, 1, dtype=torch.float64), torch.tensor([0]))


def test_a_step():
    # Features z = (1, 0), anchor's (0, 1), previous (0, -1): both cosines are 0, the loss is ln 2.
    # At z, d cos(z, z_a) / dz = (0, 1) and d cos(z, z_p) / dz = (0, -1); dL/dcos_a = -1 / (2 tau) = -dL/dcos_p:
    # dL/dz = (0, -1 / tau) = (0, -2) for tau = 1/2. Times mu = 3: (0, -6). As the head is 0, the body has no other.
    # Local gradient of the head: (p - onehot) z^T = (-1/2, 1/2)^T (1, 0).
    algorithm = make_algorithm({"name": "moon", "mu": 3.0, "tau": 0.5})
    task = task_for(split(FeaturesAreWeights().double(), (1,)), weights(0, 1))
    gradient, loss = algorithm.gradient(task, weights(1, 0), BATCH, prefixed(PREVIOUS, weights(0, -1)))
    torch.testing.assert_close(gradient["body.weight"].flatten(), torch.tensor([0.0, -6.0], dtype=torch.float64))
    expected = torch.tensor([[-0.5, 0], [0.5, 0]], dtype=torch.float64)
    torch.testing.assert_close(gradient["head.weight"], expected)
    assert float(loss) == pytest.approx(log(2))  # the local loss of two equal logits


def test_the_loss():
    # z = z_a = (0, 1), previous (1, 0): cosines 1 and 0; -log(e^2 / (e^2 + 1)) for tau = 1/2.
    task = task_for(split(FeaturesAreWeights().double(), (1,)), weights(0, 1))
    point = task.at(weights(0, 1), BATCH)
    found = Contrastive(weights(1, 0), 0.5).loss(point.outputs, point).detach()
    assert float(found) == pytest.approx(log(1 + torch.tensor(-2.0).exp().item()))


@pytest.mark.parametrize("where", ["all", "body"])
def test_the_gradient_is_exactly_zero_where_the_previous_model_is_the_anchor(where):
    model = split(WithBatchNorm(), (4,))
    anchor = model.initial_weights()
    task = task_for(model, anchor)
    point = task.at(moved_from({name: anchor[name] for name in model.names}), random_batch((4,), 3))
    found = Contrastive(anchor).gradient(point, where)
    assert {name: tensor.shape for name, tensor in found.items()} == {n: anchor[n].shape for n in task.names(where)}
    assert float(norm(found)) == 0.0
    # Other running statistics alone make it another model.
    statistics = {name: anchor[name] + 1 for name in model.buffers if anchor[name].is_floating_point()}
    other = Contrastive({**anchor, **statistics}).gradient(point, where, keep=True)
    assert other.keys() == found.keys()
    assert float(norm(other)) > 1e-3
    point.gradient()  # the pass was kept


def test_the_previous_model_is_the_initial_one_at_first_and_then_the_last_trained():
    algorithm = make_algorithm({"name": "moon"})
    assert without_prefix(PREVIOUS, algorithm.init_client(weights(1, 2), {})).keys() == weights(1, 2).keys()
    trained = weights(5, 6)
    state, _ = algorithm.finish(task_for(split(FeaturesAreWeights().double(), (1,)), weights(0, 1)), trained, 3, {})
    assert torch.equal(without_prefix(PREVIOUS, state)["body.weight"], trained["body.weight"])
    assert without_prefix(PREVIOUS, state)["body.weight"] is not trained["body.weight"]


def test_features_of_a_reduced_pass_are_compared_in_full_precision():
    """Cosines near 1 differ by less than bfloat16 can tell."""
    own, anchor, previous = (torch.ones(5, 8) + 0.1 * torch.randn(5, 8) for _ in range(3))

    def loss(dtype):
        outputs = {name: Outputs(one.bfloat16().to(dtype), one) for name, one in (("a", anchor), ("p", previous))}
        point = SimpleNamespace(anchor_outputs=outputs["a"], constant_outputs=lambda _name, _weights: outputs["p"])
        return Contrastive({}).loss(Outputs(own.bfloat16().to(dtype), own), point)

    assert loss(torch.bfloat16).dtype == torch.float32
    assert torch.equal(loss(torch.bfloat16), loss(torch.float32))
