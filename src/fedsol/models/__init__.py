"""The models that come with fedsol, as a table that can be listed without building any of them."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from fedsol.config.tables import shown, suggestion
from fedsol.core.memory import peak_bytes, require_memory
from fedsol.data.types import MASK, Inputs, tensors_of
from fedsol.errors import InputError
from fedsol.models import resnet
from fedsol.models.basic import CNN, MLP, Small
from fedsol.models.slvit import SLViT
from fedsol.models.split import call
from fedsol.models.tabular import Tabular
from fedsol.models.text import Text
from fedsol.models.unet import UNet
from fedsol.models.vgg import VGG11

LARGE_PASS = 200_000
"""Values of an input or output beyond which a pass through the model may not fit into memory."""

Form = Literal["images", "numbers", "a table with categories", "tokens", "named tensors"]
Answers = Literal["sample", "token", "pixel"]
ANSWERS: dict[int, Answers] = {1: "sample", 2: "token", 3: "pixel"}
"""What has a row of outputs, by the dimensions of the output of one input."""


@dataclass(frozen=True)
class ModelShape:
    """What a model is sized for: one input ((channels, height, width) for images) and its output.

    `examples` are two inputs of data that is not made of real numbers: tokens, or named tensors.
    """

    input_shape: tuple[int, ...]
    classes: int
    categories: tuple[int, ...] = ()
    """A table's categorical columns: the number of codes of each."""
    vocabulary: int | None = None
    output_shape: tuple[int, ...] = ()
    """Of one input's output; by default a row of `classes`."""
    examples: Inputs | None = None

    def probe(self) -> Inputs:
        """Return two inputs for trying out a model: random numbers, or the examples."""
        if self.examples is not None:
            return self.examples
        return torch.randn(2, *self.input_shape, generator=torch.Generator().manual_seed(0))

    def blank(self) -> Inputs:
        """Return two inputs without values, on torch's default device."""
        if self.examples is None or isinstance(self.examples, Tensor):
            dtype = None if self.examples is None else self.examples.dtype
            return torch.empty(2, *self.input_shape, dtype=dtype)
        return {name: torch.empty(2, *tensor.shape[1:], dtype=tensor.dtype) for name, tensor in self.examples.items()}

    @property
    def pass_size(self) -> int:
        """About how many values a pass of one input has, whatever the model: every token may see every other one."""
        values = math.prod(self.input_shape)
        if self.examples is not None:
            values = max(math.prod(tensor.shape[1:]) for tensor in tensors_of(self.examples).values())
        return max(values**2 if self.form == "tokens" else values, math.prod(self.outputs))

    @property
    def outputs(self) -> tuple[int, ...]:
        """The shape of one input's output."""
        return self.output_shape or (self.classes,)

    @property
    def answers(self) -> Answers:
        """What has a row of outputs."""
        return ANSWERS[len(self.outputs)]

    @property
    def form(self) -> Form:
        """What the inputs are; of named tensors only those that a model of fedsol's has parameters for."""
        if isinstance(self.examples, dict):
            names = self.examples.keys()
            if "input_ids" in names and names <= {"input_ids", MASK}:
                return "tokens"
            codes = self.examples.get("categories")
            is_table = codes is not None and codes.dtype == torch.int64 and names == {"numbers", "categories"}
            return "a table with categories" if is_table else "named tensors"
        if self.vocabulary is not None:
            return "tokens"
        return "images" if len(self.input_shape) == 3 else "numbers"

    @property
    def numbers(self) -> int:
        """How many real numbers an input has; of a table its columns of numbers."""
        if isinstance(self.examples, dict):
            return math.prod(self.examples["numbers"].shape[1:]) if "numbers" in self.examples else 0
        return math.prod(self.input_shape)

    def arguments_for(self, factory: Callable[..., object]) -> dict[str, object]:
        """Return what the factory has parameters for: `input_shape`, `classes` and the other names below."""
        try:
            parameters = inspect.signature(factory).parameters
        except ValueError:  # some callables written in C have no signature
            return {}
        known = {
            "input_shape": self.input_shape,
            "classes": self.classes,
            "num_classes": self.classes,
            "num_labels": self.classes,
            "categories": self.categories,
            "vocabulary": self.vocabulary,
            "vocab_size": self.vocabulary,
            "numbers": self.numbers,
            "output_shape": self.outputs,
        }
        by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {n: v for n, v in known.items() if n in parameters and parameters[n].kind in by_keyword}


@dataclass(frozen=True)
class Option:
    """One setting of a model: an integer from 1 to `largest`, or one of the `choices`."""

    description: str
    choices: tuple[str | int, ...] = ()
    largest: int = 1_000_000

    def allows(self, value: object) -> bool:
        """Return whether a value is allowed."""
        if self.choices:
            return any(value == choice and type(value) is type(choice) for choice in self.choices)
        return type(value) is int and 1 <= value <= self.largest

    @property
    def allowed(self) -> str:
        """Return the allowed values in words."""
        return (
            f"one of {', '.join(map(repr, self.choices))}" if self.choices else f"an integer from 1 to {self.largest}"
        )


@dataclass(frozen=True)
class ModelSpec:
    """A model by its name. `factory` takes the sizes that `ModelShape` has by its names, and the options.

    `smallest_side` is the minimum height and width of its images.
    """

    name: str
    description: str
    factory: Callable[..., nn.Module]
    smallest_side: int | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    forms: tuple[Form, ...] = ("images",)
    answers: tuple[Answers, ...] = ("sample",)

    def fits(self, shape: ModelShape) -> bool:
        """Return whether the model takes such inputs and gives such outputs."""
        is_large = self.smallest_side is None or min(shape.input_shape[1:], default=0) >= self.smallest_side
        return shape.form in self.forms and shape.answers in self.answers and is_large

    def build(self, options: Mapping[str, object], shape: ModelShape) -> nn.Module:
        """Return the model, initialized from torch's global generator."""
        for option, value in options.items():
            if option not in self.options:
                hint = suggestion(option, self.options) if self.options else f"{self.name!r} has no options"
                raise InputError(f"model.options.{option}: unknown key; {hint}")
            if not self.options[option].allows(value):
                allowed = self.options[option].allowed
                raise InputError(f"model.options.{option}: must be {allowed} (got {shown(value)})")
        if not self.fits(shape):
            raise InputError(f"model.name: {self.name!r} {self._misfit(shape)}")
        self._require_memory(options, shape)
        return self._make(options, shape)

    def _make(self, options: Mapping[str, object], shape: ModelShape) -> nn.Module:
        return self.factory(**shape.arguments_for(self.factory), **options)

    def _misfit(self, shape: ModelShape) -> str:
        """Return what the model takes, what there is, and which models take that."""
        others = ", ".join([*(spec.name for spec in _SPECS if spec.fits(shape)), "module:factory"])
        if shape.answers not in self.answers:
            given = " or ".join(f"per {answers}" for answers in self.answers)
            return f"gives one answer {given}, and the task takes one per {shape.answers}; allowed here: {others}"
        if shape.form in ("images", "numbers") and self.smallest_side is not None:
            side = f"{self.smallest_side}x{self.smallest_side}"
            return (
                f"must have inputs (channels, height, width) of at least {side} pixels (got the shape "
                f"{shape.input_shape}); allowed here: {others}"
            )
        return f"must have {' or '.join(self.forms)} (got {shape.form}); allowed here: {others}"

    def _require_memory(self, options: Mapping[str, object], shape: ModelShape) -> None:
        """Raise `InputError` if the weights and their gradient, or two large inputs, do not fit into memory."""
        purpose = f"model.name: {self.name!r} with {dict(options)} for inputs of shape {shape.input_shape}"
        try:
            with torch.device("meta"):  # shapes only
                model = self._make(options, shape)
                weights = sum(parameter.nbytes for parameter in model.parameters())
                # Torch's first pass without values takes a second of imports: only where it can matter.
                pass_bytes = peak_bytes(lambda: call(model, shape.blank())) if shape.pass_size > LARGE_PASS else 0
        except RuntimeError as error:  # the number of bytes itself does not fit into 64 bits
            if "overflow" not in str(error):
                raise
            raise InputError(f"{purpose} takes more memory than any machine has") from error
        require_memory(2 * weights + pass_bytes, purpose)


_SPECS = (
    ModelSpec(
        "small",
        "one 3x3 convolution and a hidden layer: the default for images of fewer than 16 pixels",
        Small,
        smallest_side=2,
        options={"width": Option("channels of the convolution"), "hidden": Option("units of the hidden layer")},
    ),
    ModelSpec(
        "mlp",
        "two hidden layers on the flattened input, for vectors and anything else",
        MLP,
        options={"hidden": Option("units of each hidden layer")},
        forms=("numbers", "images"),
    ),
    ModelSpec("cnn", "two 5x5 convolutions and a 512-unit layer (McMahan et al. 2017)", CNN, smallest_side=4),
    ModelSpec("vgg11", "VGG-11 without batch norm; smaller images are resized to 32x32", VGG11, smallest_side=1),
    ModelSpec(
        "resnet18",
        "ResNet-18 for small images, batch norm with running statistics",
        resnet.ResNet18,
        smallest_side=8,
    ),
    ModelSpec(
        "resnet18-batchstats",
        "ResNet-18 whose batch norm has no running statistics: a prediction depends on its batch",
        resnet.with_batch_statistics,
        smallest_side=8,
    ),
    ModelSpec(
        "resnet18-gn",
        "ResNet-18 for small images with group norm, as most papers on federated sharpness use it",
        resnet.with_group_norm,
        smallest_side=8,
        options={"groups": Option("groups of channels", choices=(1, 2, 4, 8, 16, 32, 64))},
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
    ModelSpec(
        "tabular",
        "embeddings of the categories of a table beside its numbers, and two hidden layers",
        Tabular,
        options={
            "hidden": Option("units of each hidden layer"),
            "embedding": Option("most numbers that a category becomes"),
        },
        forms=("numbers", "a table with categories"),
    ),
    ModelSpec(
        "text",
        "a small transformer encoder for token ids: one answer per sample, or the next token",
        Text,
        options={
            "dim": Option("width of a token"),
            "depth": Option("transformer blocks", largest=1000),
            "heads": Option("attention heads", largest=1000),
            "mlp": Option("hidden units of a block's two-layer network"),
        },
        forms=("tokens",),
        answers=("sample", "token"),
    ),
    ModelSpec(
        "unet",
        "a small U-Net with group norm: a class per pixel (Ronneberger et al. 2015)",
        UNet,
        smallest_side=8,
        options={"width": Option("channels at full size; twice and four times as many below")},
        answers=("pixel",),
    ),
)

MODELS: dict[str, ModelSpec] = {spec.name: spec for spec in _SPECS}
