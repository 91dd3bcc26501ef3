"""The functional view of a model: exact split, buffers, sharing, and models of all the shapes users write."""

from collections import OrderedDict
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fedsol.config.model import ModelSettings
from fedsol.models import MODELS, ModelShape
from fedsol.models.build import build_split_model, find_head
from fedsol.models.split import SplitModel

DIGITS = ModelShape((1, 8, 8), 10)
Make = Callable[[], SplitModel]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.bn(self.conv(x)))


class TorchvisionResNet(nn.Module):
    """`fc` is the head, nested layers make the body."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.layer1 = nn.Sequential(Block(4), Block(4))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(self.avgpool(self.layer1(self.conv1(x))), 1))


class TorchvisionViT(nn.Module):
    """The head is inside a container of its own name."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 6)
        self.encoder = nn.TransformerEncoderLayer(6, 2, 12, dropout=0.1, batch_first=True)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(6, 10)))

    def forward(self, x: Tensor) -> Tensor:
        return self.heads(self.encoder(self.embed(x[:, 0]))[:, 0])


class DefinedBackwards(nn.Module):
    """The last linear layer in the definition is not the last one to run."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(5, 10)
        self.input = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(torch.relu(self.input(x.flatten(1))))


class TimmLike(nn.Module):
    """`get_classifier()` is how such libraries tell their head; fedsol finds it by running the model."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.Dropout(0.5))
        self.classifier = nn.Linear(5, 10)

    def get_classifier(self) -> nn.Module:
        return self.classifier

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.backbone(x))


class Recurrent(nn.Module):
    """Reads an image row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True)
        self.head = nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x[:, 0])[0][:, -1])


class TiedBody(nn.Module):
    """Two layers of the body share a weight, and one module has two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 64, bias=False)
        self.second.weight = self.first.weight
        self.again = self.first
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.again(torch.relu(self.second(self.first(x.flatten(1)))))))


class ReplacesItsBuffer(DefinedBackwards):
    """Assigns a new tensor to its buffer instead of changing it, as many moving averages do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("constant", torch.ones(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = self.seen + len(x) * self.constant
        return super().forward(x)


class ReshapesAfterTheHead(DefinedBackwards):
    """What follows the head fits its output alone; the body's pass must not run it."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).view(-1, 10)


class SwallowsErrors(DefinedBackwards):
    def forward(self, x: Tensor) -> Tensor:
        try:
            return super().forward(x)
        except Exception:
            return x.new_zeros(len(x), 10)


USERS = {
    TorchvisionResNet: "fc",
    TorchvisionViT: "heads.head",
    DefinedBackwards: "output",
    TimmLike: "classifier",
    Recurrent: "head",
    TiedBody: "head",
    ReplacesItsBuffer: "output",
    ReshapesAfterTheHead: "output",
    SwallowsErrors: "output",
}


def split(make: type[nn.Module], head: str | None = None) -> SplitModel:
    model = make()
    return SplitModel(model, find_head(model, head, DIGITS.probe()), DIGITS.probe())


def own(name: str) -> SplitModel:
    return build_split_model(ModelSettings(name=name, options={"depth": 2} if name == "slvit" else {}), DIGITS, 0)


CASES = [pytest.param(lambda name=name: own(name), id=name) for name, spec in MODELS.items() if spec.fits(DIGITS)]
CASES += [pytest.param(lambda make=make: split(make), id=make.__name__) for make in USERS]
every_model = pytest.mark.parametrize("make", CASES)


def leaves(model: SplitModel) -> dict[str, Tensor]:
    """Weights unlike the module's own, so that a pass that used those would be seen."""
    weights = model.initial_weights()
    for name in model.names:
        weights[name] += 0.1 * torch.randn_like(weights[name])
        weights[name].requires_grad_()
    return weights


@pytest.fixture
def inputs() -> Tensor:
    return torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@every_model
@pytest.mark.parametrize("training", [False, True])
def test_the_parts_make_the_whole_exactly(make: Make, training: bool, inputs: Tensor) -> None:
    model = make()
    model.train(training)
    weights = leaves(model)
    torch.manual_seed(5)  # for dropout
    features, logits = model.outputs(weights, inputs)
    torch.manual_seed(5)
    only_features = model.features(weights, inputs)
    assert torch.equal(only_features, features)
    assert torch.equal(model.logits(weights, only_features), logits)


@every_model
@pytest.mark.parametrize("training", [False, True])
def test_a_pass_is_torchs_functional_call(make: Make, training: bool, inputs: Tensor) -> None:
    model = make()
    model.train(training)
    weights = leaves(model)
    for_torch = {name: w.detach().clone().requires_grad_(w.requires_grad) for name, w in weights.items()}
    torch.manual_seed(5)
    _, logits = model.outputs(weights, inputs)
    torch.manual_seed(5)
    assert torch.equal(functional_call(model._model, for_torch, (inputs,)), logits)
    for name in model.buffers:
        assert torch.equal(weights[name], for_torch[name])


@every_model
def test_gradients_reach_every_weight_and_none_reaches_the_module(make: Make, inputs: Tensor) -> None:
    model = make()
    before = model.initial_weights()
    weights = leaves(model)
    _, logits = model.outputs(weights, inputs)
    loss = F.cross_entropy(logits, torch.tensor([0, 1, 2]))
    for gradient in torch.autograd.grad(loss, [weights[name] for name in model.names]):
        assert gradient.isfinite().all()
    after = model.initial_weights()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(isinstance(p, nn.Parameter) and p.grad is None for p in model._model.parameters())


@every_model
def test_names(make: Make) -> None:
    model = make()
    module = model._model
    assert model.names == tuple(name for name, _ in module.named_parameters())
    assert set(model.head_names) | set(model.body_names) == set(model.names)
    assert set(model.head_names) == {f"{model.head}.weight", f"{model.head}.bias"}
    assert not set(model.head_names) & set(model.body_names)
    assert set(model.buffers) <= set(module.state_dict())
    assert set(model.initial_weights()) == set(model.names) | set(model.buffers)


@pytest.mark.parametrize(("make", "head"), USERS.items(), ids=lambda value: str(value)[-20:])
def test_the_head_is_the_last_linear_layer_that_runs(make: type[nn.Module], head: str) -> None:
    assert split(make).head == head


def test_shared_weights_of_the_body_have_one_name(inputs: Tensor) -> None:
    model = split(TiedBody)
    assert model.names == ("first.weight", "first.bias", "head.weight", "head.bias")
    weights = leaves(model)
    gradient = torch.autograd.grad(model.outputs(weights, inputs)[1].sum(), weights["first.weight"])[0]
    w, b = weights["first.weight"].detach().requires_grad_(), weights["first.bias"].detach()
    hidden = F.linear(F.relu(F.linear(F.linear(inputs.flatten(1), w, b), w)), w, b).relu()
    expected = torch.autograd.grad(F.linear(hidden, weights["head.weight"].detach()).sum(), w)[0]
    torch.testing.assert_close(gradient, expected)
