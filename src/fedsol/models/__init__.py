"""The models fedsol brings, as a table that can be listed without building any of them."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fedsol.config.tables import suggestion
from fedsol.errors import InputError
from fedsol.models.cnn import CNN
from fedsol.models.resnet import ResNet18
from fedsol.models.slvit import SLViT
from fedsol.models.basic import MLP, Small
from fedsol.models.vgg import VGG11


@dataclass(frozen=True)
class ModelShape:
    """What a model is sized to: one input ((channels, height, width) for images) and the classes."""

    input_shape: tuple[int, ...]
    classes: int

    def probe(self) -> Tensor:
        """Two fixed random inputs, to try a model with."""
        return torch.randn(2, *self.input_shape, generator=torch.Generator().manual_seed(0))

    def arguments_for(self, factory: Callable[..., object]) -> dict[str, object]:
        """`input_shape`, `classes` and `num_classes`, as far as the factory has parameters of these names."""
        try:
            parameters = inspect.signature(factory).parameters
        except ValueError:  # some callables written in C do not tell
            return {}
        known = {"input_shape": self.input_shape, "classes": self.classes, "num_classes": self.classes}
        by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {n: v for n, v in known.items() if n in parameters and parameters[n].kind in by_keyword}


@dataclass(frozen=True)
class Option:
    """One setting of a model: a whole number of at least 1, or one of the `choices`."""

    default: int | str
    description: str
    choices: tuple[str, ...] = ()

    def problem(self, value: object) -> str | None:
        """What is wrong with a value, or None if it is allowed."""
        if self.choices:
            return None if value in self.choices else f"must be one of {', '.join(map(repr, self.choices))}"
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        return None if is_count else "must be a whole number of at least 1"


@dataclass(frozen=True)
class ModelSpec:
    """A model by its name. `factory` takes the input shape, the number of classes, the options as keywords.

    `smallest_side` is the least height and width of its images; a model without one takes any shape.
    """

    name: str
    description: str
    factory: Callable[..., nn.Module]
    smallest_side: int | None = None
    options: Mapping[str, Option] = field(default_factory=dict)

    def build(self, options: Mapping[str, object], shape: ModelShape) -> nn.Module:
        """The model, initialised from torch's global generator."""
        self._check_options(options)
        self._check_shape(shape.input_shape)
        return self.factory(shape.input_shape, shape.classes, **options)

    def _check_options(self, options: Mapping[str, object]) -> None:
        for option, value in options.items():
            if option not in self.options:
                hint = suggestion(option, self.options) if self.options else "it has no options"
                raise InputError(f"model.options.{option}: {self.name!r} has no such option; {hint}")
            if problem := self.options[option].problem(value):
                raise InputError(f"model.options.{option}: {value!r} is not allowed: {problem}")

    def _check_shape(self, input_shape: tuple[int, ...]) -> None:
        side = self.smallest_side
        if side is not None and (len(input_shape) != 3 or min(input_shape[1:]) < side):
            raise InputError(
                f"model.name: {self.name!r} needs images (channels, height, width) of at least {side}x{side},"
                f" but the data's inputs have the shape {input_shape}; 'mlp' takes inputs of any shape"
            )


def _resnet18_batchstats(input_shape: tuple[int, ...], classes: int) -> ResNet18:
    return ResNet18(input_shape, classes, running_statistics=False)


_SPECS = (
    ModelSpec(
        "small",
        "one 3x3 convolution and a hidden layer: the default for digits",
        Small,
        smallest_side=2,
        options={
            "width": Option(16, "channels of the convolution"),
            "hidden": Option(64, "units of the hidden layer"),
        },
    ),
    ModelSpec(
        "mlp",
        "two hidden layers on the flattened input, for vectors and anything else",
        MLP,
        options={"hidden": Option(64, "units of each hidden layer")},
    ),
    ModelSpec(
        "cnn",
        "two 5x5 convolutions and a 512-unit layer (McMahan et al. 2017)",
        CNN,
        smallest_side=4,
    ),
    ModelSpec(
        "vgg11",
        "VGG-11 without batch norm; images smaller than 32x32 are resized to it",
        VGG11,
        smallest_side=1,
    ),
    ModelSpec(
        "resnet18",
        "ResNet-18 for small images, batch norm with running statistics",
        ResNet18,
        smallest_side=8,
    ),
    ModelSpec(
        "resnet18-batchstats",
        "ResNet-18 whose batch norm has no running statistics: a prediction depends on its batch",
        _resnet18_batchstats,
        smallest_side=8,
    ),
    ModelSpec(
        "slvit",
        "SL-ViT: shifted patch tokens and locality self-attention (Lee et al. 2021)",
        SLViT,
        smallest_side=1,
        options={
            "shift": Option(
                "diagonal",
                "shifted copies: by half a patch along the diagonals, or by one pixel along the axes",
                choices=("diagonal", "axis"),
            ),
            "patch": Option(8, "side of a patch in pixels"),
            "dim": Option(192, "width of a token"),
            "depth": Option(9, "transformer blocks"),
            "heads": Option(12, "attention heads"),
            "dim_head": Option(64, "width of an attention head"),
            "mlp": Option(192, "hidden units of a block's two-layer network"),
        },
    ),
)

MODELS: dict[str, ModelSpec] = {spec.name: spec for spec in _SPECS}
