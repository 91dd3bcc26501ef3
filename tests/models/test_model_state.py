"""What a pass reads, changes and leaves behind: weights, buffers, copies, memory."""

import copy
import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedsol.config.model import ModelSettings
from fedsol.errors import InputError
from fedsol.models import ModelShape
from fedsol.models.build import build_split_model, find_head
from fedsol.models.split import SplitModel

DIGITS = ModelShape((1, 8, 8), 10)


def plain() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 10))


def normalizing() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 10))


class Counting(nn.Sequential):
    """Assigns a new tensor to its buffer instead of changing it, as many moving averages do."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 5), nn.Linear(5, 10))
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("constant", torch.ones(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = self.seen + len(x) * self.constant
        return super().forward(x)


def split(make: Callable[[], nn.Module]) -> SplitModel:
    model = make()
    return SplitModel(model, find_head(model, None, DIGITS.probe()), DIGITS.probe())


def own(name: str) -> SplitModel:
    return build_split_model(ModelSettings(name=name), DIGITS, 0)


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


def test_each_part_needs_its_own_weights_alone(inputs: Tensor) -> None:
    model = split(normalizing)
    model.train(False)
    weights = leaves(model)
    head = {name: weights.pop(name) for name in model.head_names}
    assert model.logits(head, model.features(weights, inputs)).shape == (3, 10)
    with pytest.raises(KeyError, match=r"4\.weight"):
        model.outputs(weights, inputs)
    assert model.outputs(model.initial_weights(), inputs)[1].shape == (3, 10)  # nothing is left behind


def test_initial_weights_are_copies() -> None:
    model = own("small")
    changed = model.initial_weights()
    for weight in changed.values():
        assert not weight.requires_grad
        weight.zero_()
    assert all(weight.any() for weight in model.initial_weights().values())


@pytest.mark.parametrize("make", [lambda: own("resnet18"), lambda: split(normalizing)], ids=["own", "users"])
def test_running_statistics_follow_training_passes_only(make: Callable[[], SplitModel], inputs: Tensor) -> None:
    model = make()
    weights = model.initial_weights()
    given = {name: weights[name] for name in model.buffers}
    before = {name: weight.clone() for name, weight in given.items()}
    counters = [name for name in given if name.endswith("num_batches_tracked")]
    assert len(model.buffers) == 3 * len(counters) > 0

    model.train(False)
    model.outputs(weights, inputs)
    model.features(weights, inputs)
    assert all(torch.equal(given[name], before[name]) for name in given)

    model.train(True)
    model.outputs(weights, inputs)
    assert not any(torch.equal(given[name], before[name]) for name in given)
    assert all(given[name] is weights[name] for name in given)
    model.features(weights, inputs)
    assert {given[name].item() for name in counters} == {2}
    assert all(torch.equal(weight, before[name]) for name, weight in model.initial_weights().items() if name in given)


def test_buffers_are_running_statistics() -> None:
    assert split(normalizing).buffers == ("2.running_mean", "2.running_var", "2.num_batches_tracked")
    assert len(own("resnet18").buffers) == 3 * 20
    assert own("resnet18-batchstats").buffers == own("small").buffers == ()


def test_a_replaced_buffer_changes_the_one_that_was_given(inputs: Tensor) -> None:
    model = split(Counting)
    weights = model.initial_weights()
    given = weights["seen"]
    assert model.buffers == ("seen",)
    for expected in (3, 6):
        model.outputs(weights, inputs)
        assert given.item() == expected
        assert weights["seen"] is given
    assert model.initial_weights()["seen"].item() == 0


def test_frozen_parameters_stay_in_the_module(inputs: Tensor) -> None:
    module = plain()
    module[1].requires_grad_(False)
    model = SplitModel(module, "3", DIGITS.probe())
    assert model.names == model.head_names == ("3.weight", "3.bias")
    assert model.body_names == model.buffers == ()
    assert model.initial_weights().keys() == set(model.names)
    assert model.frozen.keys() == {"1.weight", "1.bias"}
    hashed = model.frozen_sha256
    with torch.no_grad():
        module[1].weight.zero_()
        module[1].bias.fill_(2)
    assert torch.equal(model.features(model.initial_weights(), inputs), torch.full((3, 5), 2.0))
    other = SplitModel(module, "3", DIGITS.probe())
    assert other.frozen_sha256 != hashed
    with pytest.raises(InputError, match=f"frozen weights here have the sha256 {other.frozen_sha256}.*{hashed}"):
        other.check_frozen(hashed, "elsewhere")


def test_a_failing_pass_leaves_the_model_as_it_was(inputs: Tensor) -> None:
    model = split(plain)
    parameters = list(model._model.parameters())
    weights = leaves(model)
    for attempt in (model.outputs, model.features):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            attempt(weights, inputs[:, :, :4])
    assert all(now is then for now, then in zip(model._model.parameters(), parameters, strict=True))
    assert model.outputs(weights, inputs)[1].shape == (3, 10)


def test_a_copy_is_independent(inputs: Tensor) -> None:
    model = split(normalizing)
    other = copy.deepcopy(model)
    other.train(False)
    weights = leaves(model)
    torch.manual_seed(5)
    before = model.outputs(weights, inputs)[1]
    _, logits = other.outputs(weights, inputs)
    assert torch.equal(other.logits(weights, other.features(weights, inputs)), logits)
    assert not torch.equal(logits, before)  # the first one still drops out and normalizes by the batch
    assert model._model.training


def test_two_views_of_one_model_do_not_disturb_each_other(inputs: Tensor) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Sequential(nn.Linear(5, 10)))
    narrow = SplitModel(module, "2.0", DIGITS.probe())
    wide = SplitModel(module, "2", DIGITS.probe())
    narrow.train(False)
    weights = narrow.initial_weights()
    assert torch.equal(narrow.features(weights, inputs), wide.features(weights, inputs))
    assert torch.equal(narrow.outputs(weights, inputs)[1], wide.outputs(weights, inputs)[1])


def test_a_pass_keeps_nothing_alive(inputs: Tensor) -> None:
    model = split(plain)
    weights = leaves(model)
    gc.disable()  # what reference counting alone does not free would pile up in a training loop
    try:
        features, logits = model.outputs(weights, inputs)
        only_features = model.features(weights, inputs)
        again = model.logits(weights, only_features)
        watched = [weakref.ref(tensor) for tensor in (features, logits, only_features, again)]
        del features, logits, only_features, again
        assert [reference() for reference in watched] == [None] * 4
    finally:
        gc.enable()


def test_inference_mode_and_evaluation(inputs: Tensor) -> None:
    model = split(normalizing)
    model.train(False)
    with torch.inference_mode():
        features, logits = model.outputs(model.initial_weights(), inputs)
    assert features.shape == (3, 5)
    assert not logits.requires_grad


class FrozenNorm(nn.Sequential):
    """Leaves its batch norm in evaluation mode, as fine-tuning often does."""

    def train(self, mode: bool = True) -> "FrozenNorm":
        super().train(mode)
        self[2].eval()
        return self


def test_a_model_with_modes_of_its_own_keeps_them(inputs: Tensor) -> None:
    model = split(lambda: FrozenNorm(*normalizing()))
    weights = model.initial_weights()
    before = {name: weights[name].clone() for name in model.buffers}
    model.train()
    model.outputs(weights, inputs)
    assert all(torch.equal(weights[name], tensor) for name, tensor in before.items())


def test_a_single_value_without_running_statistics_cannot_be_normalized() -> None:
    model = split(
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 10)
        )
    )
    model.train()
    with pytest.raises(InputError, match=r"model\.name: a batch norm without running statistics"):
        model.outputs(model.initial_weights(), torch.zeros(1, 1, 8, 8))


def test_a_model_has_a_name() -> None:
    with pytest.raises(InputError, match=r"^model\.name: is missing$"):
        build_split_model(ModelSettings(), DIGITS, 0)
