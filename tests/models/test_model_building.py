"""Building by name and by a user's factory: determinism, options, and every refusal."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from fedsol.config.model import ModelSettings
from fedsol.errors import InputError
from fedsol.models import MODELS, ModelShape
from fedsol.models.build import build_model, build_split_model, find_head

DIGITS = ModelShape((1, 8, 8), 10)
MODELS_OF_IMAGES = [name for name, spec in MODELS.items() if spec.fits(DIGITS)]

USERS_MODELS = """
import torch
from torch import nn

def sized(input_shape, classes, hidden=4):
    pixels = input_shape[1] * input_shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, hidden), nn.Linear(hidden, classes))

class Torchvisionlike(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        self.fc = nn.Linear(64, num_classes)
    def forward(self, x):
        return self.fc(x.flatten(1))

def fixed():
    return Torchvisionlike(10)

def open_ended(**options):
    assert not options, options
    return fixed()

def lazy(classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(classes))

def wrong_classes():
    return Torchvisionlike(7)

def not_a_model():
    return 3

def broken():
    raise RuntimeError("no weights found")

class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("cannot see")

class Tuple(nn.Module):
    def forward(self, x):
        return x, x

class NotFinite(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :10] / 0

number = 3
"""


@pytest.fixture
def users(tmp_path: Path) -> str:
    path = tmp_path / "users_models.py"
    path.write_text(USERS_MODELS)
    return str(path)


def same(one: nn.Module, other: nn.Module) -> bool:
    left, right = one.state_dict(), other.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_every_model_has_a_name_and_a_line() -> None:
    of_images = ["small", "mlp", "cnn", "vgg11", "resnet18", "resnet18-batchstats", "resnet18-gn", "slvit"]
    assert [*MODELS] == [*of_images, "tabular", "text", "unet"]
    assert of_images == MODELS_OF_IMAGES
    for name, spec in MODELS.items():
        assert spec.name == name
        assert spec.description
        assert "\n" not in spec.description


@pytest.mark.parametrize("name", ["small", "mlp", "cnn", "slvit"])
def test_the_seed_alone_decides(name: str) -> None:
    options: dict[str, object] = {"depth": 1} if name == "slvit" else {}
    first = build_model(name, options, DIGITS, 3)
    torch.manual_seed(99)
    assert same(first, build_model(name, options, DIGITS, 3))
    assert not same(first, build_model(name, options, DIGITS, 4))


def test_the_global_random_state_is_left_alone(users: str) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    build_split_model(ModelSettings(name="small"), DIGITS, 1)
    build_split_model(ModelSettings(name=f"{users}:lazy"), DIGITS, 1)
    with pytest.raises(InputError):
        build_model(f"{users}:broken", {}, DIGITS, 1)
    assert torch.equal(torch.get_rng_state(), before)


def test_options_reach_the_model() -> None:
    assert build_model("small", {"hidden": 5}, DIGITS, 0).head.in_features == 5
    assert build_model("slvit", {"depth": 2, "shift": "axis"}, DIGITS, 0).tokens.shifts[0] == (-1, 0)


@pytest.mark.parametrize(
    ("name", "options", "shape", "message"),
    [
        (
            "resnet",
            {},
            DIGITS,
            r"model.name: unknown value 'resnet'; did you mean 'resnet18'\? Allowed: .*vgg11",
        ),
        (
            "small",
            {"hiden": 5},
            DIGITS,
            r"model.options.hiden: unknown key; did you mean 'hidden'",
        ),
        ("cnn", {"hidden": 5}, DIGITS, r"model.options.hidden: unknown key; 'cnn' has no options"),
        ("small", {"hidden": 0}, DIGITS, r"model.options.hidden: must be an integer from 1 to 1000000 .got 0"),
        ("small", {"hidden": True}, DIGITS, r"model.options.hidden: .*integer.*got True"),
        ("small", {"hidden": "9"}, DIGITS, r"model.options.hidden: .*integer.*got '9'"),
        ("slvit", {"shift": "up"}, DIGITS, r"model.options.shift: must be one of 'diagonal', 'axis' .got 'up'"),
        ("slvit", {"shift": 1}, DIGITS, r"model.options.shift: .*'diagonal', 'axis' .got 1"),
        (
            "cnn",
            {},
            ModelShape((64,), 10),
            r"model.name: 'cnn' must have inputs .*shape \(64,\)\); allowed here: mlp, tabular, module",
        ),
        ("cnn", {}, ModelShape((1, 3, 8), 10), r"at least 4x4 pixels .*\(1, 3, 8\)"),
    ],
)
def test_bad_names_options_and_shapes(name: str, options: dict[str, object], shape: ModelShape, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_model(name, options, shape, 0)


@pytest.mark.parametrize("factory", ["sized", "Torchvisionlike", "fixed", "open_ended", "lazy"])
def test_any_module_of_a_user(users: str, factory: str) -> None:
    model = build_model(f"{users}:{factory}", {}, DIGITS, 0)
    assert model.training
    assert model(torch.randn(3, 1, 8, 8)).shape == (3, 10)
    assert same(model, build_model(f"{users}:{factory}", {}, DIGITS, 0))


def test_options_of_a_users_factory(users: str) -> None:
    assert build_model(f"{users}:sized", {"hidden": 9}, DIGITS, 0)[2].in_features == 9
    assert build_model(f"{users}:sized", {"classes": 10}, DIGITS, 0)[2].out_features == 10


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("wrong_classes", r"logits of shape \(2, 10\) \(2 x classes\) \(got shape \(2, 7\)\)"),
        ("not_a_model", r"must return a torch.nn.Module \(got a int\)"),
        ("number", r"must be a function or class \(got a int\)"),
        ("broken", r"failed with the options \{\}: RuntimeError: no weights found"),
        ("Fails", r"failed on inputs of shape \(2, 1, 8, 8\): ValueError: cannot see"),
        ("Tuple", r"\(2, 10\) .*got a tuple"),
        ("NotFinite", r"NaN or infinity"),
        ("missing", r"has no 'missing'"),
    ],
)
def test_refused_factories(users: str, factory: str, message: str) -> None:
    reference = f"{users}:{factory}"
    with pytest.raises(InputError, match=rf"model.name: '{re.escape(reference)}'.*{message}"):
        build_model(reference, {}, DIGITS, 0)


def test_a_users_error_is_the_cause(users: str) -> None:
    with pytest.raises(InputError, match="unexpected keyword argument 'depth'") as caught:
        build_model(f"{users}:fixed", {"depth": 3}, DIGITS, 0)
    assert isinstance(caught.value.__cause__, TypeError)


@pytest.mark.parametrize("name", MODELS_OF_IMAGES)
def test_the_head_of_every_model_is_found(name: str) -> None:
    options: dict[str, object] = {"depth": 1} if name == "slvit" else {}
    model = build_model(name, options, DIGITS, 0)
    assert find_head(model, None, DIGITS.probe()) == "head"
    assert model.training


def test_a_factory_without_a_signature_gets_no_sizes() -> None:
    assert ModelShape((1, 8, 8), 10).arguments_for(type) == {}
