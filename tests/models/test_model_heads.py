"""Which module of a model is its head, and which cannot be."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsol.errors import InputError
from fedsol.models import ModelShape
from fedsol.models.build import find_head
from fedsol.models.split import SplitModel

DIGITS = ModelShape((1, 8, 8), 10)


class DefinedBackwards(nn.Module):
    """The last linear layer in the definition is not the last one to run."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(5, 10)
        self.input = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(torch.relu(self.input(x.flatten(1))))


class LogSoftmax(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 5)
        self.fc = nn.Linear(5, 10)

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(self.fc(torch.relu(self.hidden(x.flatten(1)))), dim=1)


class Convolutional(nn.Module):
    """No linear layer anywhere; its classifier must be named."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.classifier = nn.Sequential(nn.Conv2d(4, 10, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.relu(self.conv(x)))


class TiedHead(nn.Module):
    """The head uses a weight of the body."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(64, 10)
        self.mix = nn.Linear(10, 64)
        self.head = nn.Linear(64, 10)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.mix(self.embed(x.flatten(1)))))


class HeadTwice(DefinedBackwards):
    def forward(self, x: Tensor) -> Tensor:
        super().forward(x)
        return super().forward(x)


class BatchNormInHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(64, 5)
        self.head = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x.flatten(1)))


class FrozenHead(DefinedBackwards):
    def __init__(self) -> None:
        super().__init__()
        self.output.requires_grad_(False)


class KeywordHead(DefinedBackwards):
    def forward(self, x: Tensor) -> Tensor:
        return self.output(input=self.input(x.flatten(1)))


def split(make: type[nn.Module], head: str | None = None) -> SplitModel:
    model = make()
    return SplitModel(model, find_head(model, head, DIGITS.probe()), DIGITS.probe())


@pytest.mark.parametrize(
    ("make", "head", "message"),
    [
        (
            LogSoftmax,
            None,
            "last linear layer that runs, 'fc', does not give the model's output.*log_softmax",
        ),
        (LogSoftmax, "fc", "output of 'fc' must be the model's output.*log_softmax"),
        (DefinedBackwards, "input", "output of 'input' must be the model's output"),
        (DefinedBackwards, "fc", "'fc' is not a module of the model; its linear layers are: output, input"),
        (DefinedBackwards, "", "'' is not a module of the model; its linear layers are: output, input"),
        (Convolutional, None, "no linear layer runs in the model; set model.head to its classifier"),
        (Convolutional, "fc", "its linear layers are: none"),
        (TiedHead, None, "'head' must have its own weights .it shares embed.weight with"),
        (HeadTwice, None, "'output' must run once in a pass .got 2 times"),
        (BatchNormInHead, "head", "'head' must not have a batch norm"),
        (FrozenHead, None, "'output' must have parameters that can be trained"),
        (KeywordHead, None, "'output' must be called with one tensor"),
    ],
)
def test_refused_heads(make: type[nn.Module], head: str | None, message: str) -> None:
    with pytest.raises(InputError, match=rf"^model.head: .*{message}"):
        split(make, head)


def test_finding_the_head_leaves_no_hooks() -> None:
    model = DefinedBackwards()
    find_head(model, None, DIGITS.probe())
    assert not any(module._forward_hooks for module in model.modules())
    assert model.training


def test_a_single_linear_layer_is_its_own_head() -> None:
    module, probe = nn.Linear(4, 3), torch.randn(2, 4)
    head = find_head(module, None, probe)
    model = SplitModel(module, find_head(module, head, probe), probe)
    assert (head, model.body_names, model.head_names) == ("", (), ("weight", "bias"))
    assert torch.equal(model.features({}, probe), probe)


def test_a_named_head_may_be_any_module() -> None:
    inputs = torch.randn(3, 1, 8, 8)
    model = split(Convolutional, head="classifier")
    assert model.head_names == ("classifier.0.weight", "classifier.0.bias")
    features, logits = model.outputs(model.initial_weights(), inputs)
    assert features.shape == (3, 4, 6, 6)
    assert torch.equal(model.logits(model.initial_weights(), features), logits)
