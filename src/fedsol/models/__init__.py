"""The models that come with fedsol, as a table that can be listed without building any of them."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from fedsol.config.tables import shown, suggestion
from fedsol.core.memory import peak_bytes, require_memory
from fedsol.errors import InputError
from fedsol.models.basic import CNN, MLP, Small
from fedsol.models.resnet import ResNet18
from fedsol.models.slvit import SLViT
from fedsol.models.vgg import VGG11

LARGE_INPUT = 200_000
"""Values of an input beyond which a pass through the model may not fit into memory."""


@dataclass(frozen=True)
class ModelShape:
    """What a model is sized for: one input ((channels, height, width) for images) and the classes."""

    input_shape: tuple[int, ...]
    classes: int

    def probe(self) -> Tensor:
        """Return two fixed random inputs for trying out a model."""
        return torch.randn(2, *self.input_shape, generator=torch.Generator().manual_seed(0))

    def arguments_for(self, factory: Callable[..., object]) -> dict[str, object]:
        """Return `input_shape`, `classes` and `num_classes`, if the factory has parameters of these names."""
        try:
            parameters = inspect.signature(factory).parameters
        except ValueError:  # some callables written in C have no signature
            return {}
        known = {"input_shape": self.input_shape, "classes": self.classes, "num_classes": self.classes}
        by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {n: v for n, v in known.items() if n in parameters and parameters[n].kind in by_keyword}


@dataclass(frozen=True)
class Option:
    """One setting of a model: an integer from 1 to `largest`, or one of the `choices`."""

    description: str
    choices: tuple[str, ...] = ()
    largest: int = 1_000_000

    def allows(self, value: object) -> bool:
        """Return whether a value is allowed."""
        return value in self.choices if self.choices else type(value) is int and 1 <= value <= self.largest

    @property
    def allowed(self) -> str:
        """Return the allowed values in words."""
        return (
            f"one of {', '.join(map(repr, self.choices))}" if self.choices else f"an integer from 1 to {self.largest}"
        )


@dataclass(frozen=True)
class ModelSpec:
    """A model by its name. `factory` takes the input shape, the number of classes, and the options as keywords.

    `smallest_side` is the minimum height and width of its images; a model without it takes inputs of any shape.
    """

    name: str
    description: str
    factory: Callable[..., nn.Module]
    smallest_side: int | None = None
    options: Mapping[str, Option] = field(default_factory=dict)

    def build(self, options: Mapping[str, object], shape: ModelShape) -> nn.Module:
        """Return the model, initialized from torch's global generator."""
        for option, value in options.items():
            if option not in self.options:
                hint = suggestion(option, self.options) if self.options else f"{self.name!r} has no options"
                raise InputError(f"model.options.{option}: unknown key; {hint}")
            if not self.options[option].allows(value):
                allowed = self.options[option].allowed
                raise InputError(f"model.options.{option}: must be {allowed} (got {shown(value)})")
        side, inputs = self.smallest_side, shape.input_shape
        if side is not None and (len(inputs) != 3 or min(inputs[1:]) < side):
            raise InputError(
                f"model.name: {self.name!r} must have inputs (channels, height, width) of at least {side}x{side} pixels"
                f" (got the shape {inputs}); 'mlp' takes inputs of any shape"
            )
        self._require_memory(options, shape)
        return self.factory(inputs, shape.classes, **options)

    def _require_memory(self, options: Mapping[str, object], shape: ModelShape) -> None:
        """Raise `InputError` if the weights and their gradient, or two large inputs, do not fit into memory."""
        size = math.prod(shape.input_shape)
        purpose = f"model.name: {self.name!r} with {dict(options)} for inputs of shape {shape.input_shape}"
        try:
            with torch.device("meta"):  # shapes only
                model = self.factory(shape.input_shape, shape.classes, **options)
                weights = sum(parameter.nbytes for parameter in model.parameters())
                # Torch's first pass without values takes a second of imports: only where it can matter.
                pass_bytes = peak_bytes(lambda: model(torch.empty(2, *shape.input_shape))) if size > LARGE_INPUT else 0
        except RuntimeError as error:  # the number of bytes itself does not fit into 64 bits
            if "overflow" not in str(error):
                raise
            raise InputError(f"{purpose}: takes more memory than any machine has") from error
        require_memory(2 * weights + pass_bytes, purpose)


_SPECS = (
    ModelSpec(
        "small",
        "one 3x3 convolution and a hidden layer: the default for digits",
        Small,
        smallest_side=2,
        options={"width": Option("channels of the convolution"), "hidden": Option("units of the hidden layer")},
    ),
    ModelSpec(
        "mlp",
        "two hidden layers on the flattened input, for vectors and anything else",
        MLP,
        options={"hidden": Option("units of each hidden layer")},
    ),
    ModelSpec("cnn", "two 5x5 convolutions and a 512-unit layer (McMahan et al. 2017)", CNN, smallest_side=4),
    ModelSpec("vgg11", "VGG-11 without batch norm; smaller images are resized to 32x32", VGG11, smallest_side=1),
    ModelSpec("resnet18", "ResNet-18 for small images, batch norm with running statistics", ResNet18, smallest_side=8),
    ModelSpec(
        "resnet18-batchstats",
        "ResNet-18 whose batch norm has no running statistics: a prediction depends on its batch",
        partial(ResNet18, running_statistics=False),
        smallest_side=8,
    ),
    ModelSpec(
        "slvit",
        "SL-ViT: shifted patch tokens and locality self-attention (Lee et al. 2021)",
        SLViT,
        smallest_side=1,
        options={
            "shift": Option(
                "shifted copies: by half a patch along the diagonals, or by one pixel along the axes",
                choices=("diagonal", "axis"),
            ),
            "patch": Option("side of a patch in pixels"),
            "dim": Option("width of a token"),
            "depth": Option("transformer blocks", largest=1000),
            "heads": Option("attention heads", largest=1000),
            "dim_head": Option("width of an attention head"),
            "mlp": Option("hidden units of a block's two-layer network"),
        },
    ),
)

MODELS: dict[str, ModelSpec] = {spec.name: spec for spec in _SPECS}
