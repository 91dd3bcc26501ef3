"""data.json: what a model must know about its data, so that no one needs the training data to use the model."""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import torch
from pydantic import TypeAdapter, ValidationError, with_config
from torch import Tensor

from fedsol.config.fields import Count, Number
from fedsol.config.tables import DataSettings
from fedsol.core.memory import require_memory
from fedsol.data.catalog import SPECS
from fedsol.data.checks import check_images
from fedsol.data.items import TOKENS
from fedsol.data.types import KNOWN_KEYS_ONLY, MASK, UNSCALED, Columns, Dataset, Split, tensors_of
from fedsol.errors import InputError

DATA_FILE = "data.json"
INPUTS = "inputs"
"""The name of an input that is one tensor, and not several named ones."""

Kind = Literal["images", "features", "tokens", "named"]


@with_config(KNOWN_KEYS_ONLY)
@dataclass(frozen=True)
class InputTensor:
    """The type and the shape of one input."""

    type: Literal["uint8", "float32", "float64", "int64", "bool"]
    shape: tuple[Number, ...]

    @property
    def dtype(self) -> torch.dtype:
        """Torch's name of the type."""
        dtype: torch.dtype = getattr(torch, self.type)
        return dtype


@with_config(KNOWN_KEYS_ONLY)
@dataclass(frozen=True)
class DataDescription:
    """A dataset without its samples: the form of inputs and outputs, and how raw inputs are normalized.

    `inputs` are as they are stored: of a table, scaled. `image_size` is the side that image files are resized to;
    without it they must have the stored size.
    """

    name: str
    kind: Kind
    inputs: dict[str, InputTensor]
    classes: Count
    class_names: tuple[str, ...] = ()
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    channels: Count = 1
    image_size: Count | None = None
    vocabulary: Count | None = None
    codes: tuple[Count, ...] = ()
    """How many codes each column of `categories` has."""
    columns: Columns | None = None
    target: tuple[str, ...] = ()
    """Tables: the columns to predict."""
    target_mean: tuple[float, ...] = ()
    target_std: tuple[float, ...] = ()
    client_names: tuple[str, ...] = ()
    """The names of the clients, if the data brings its clients; empty if they are numbers."""
    format: Literal["fedsol-data/1"] = field(default="fedsol-data/1", kw_only=True)

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each class, label or target: the data's own, or its number."""
        return self.class_names or tuple(map(str, range(self.classes)))

    @property
    def input(self) -> InputTensor:
        """The input, if it is one tensor."""
        return self.inputs[INPUTS]

    @property
    def raw_inputs(self) -> dict[str, InputTensor]:
        """The inputs before normalization, as an exported graph takes them: the numbers of a table have 64 bits."""
        if self.columns is None:
            return self.inputs
        return {
            name: InputTensor("float64", one.shape) if one.type == "float32" else one
            for name, one in self.inputs.items()
        }

    @property
    def is_standardized(self) -> bool:
        """Whether floats are scaled by `mean` and `std`, which `data.standardize` has learned."""
        return self.kind == "features" and (self.mean, self.std) != UNSCALED

    @property
    def is_named(self) -> bool:
        """Whether the inputs are named tensors."""
        return self.kind == "named"

    def blank(self) -> Dataset:
        """Return a dataset of this form with two blank samples: zeros, all of them real, of the same vocabulary."""
        size = 8 * sum(math.prod(one.shape) for one in self.inputs.values())
        require_memory(2 * size, f"{DATA_FILE}: two inputs of {self.name}")
        tensors = {name: torch.zeros((2, *one.shape), dtype=one.dtype) for name, one in self.inputs.items()}
        if MASK in tensors:
            tensors[MASK] += 1
        if self.vocabulary is not None:
            tensors[TOKENS if self.is_named else INPUTS][0, 0] = self.vocabulary - 1
        if self.codes:
            tensors["categories"][0] = torch.tensor(self.codes) - 1
        split = Split(tensors if self.is_named else tensors[INPUTS], torch.zeros(2, dtype=torch.int64))
        return Dataset(
            self.name,
            split,
            split,
            self.classes,
            self.mean,
            self.std,
            channels=self.channels,
            class_names=self.class_names,
            columns=self.columns,
            target_mean=self.target_mean,
            target_std=self.target_std,
        )

    def to_json(self) -> str:
        """Return the description as JSON text."""
        return json.dumps(asdict(self), indent=2) + "\n"


_DESCRIPTIONS = TypeAdapter(DataDescription)


def describe_data(dataset: Dataset, settings: DataSettings) -> DataDescription:
    """Describe the dataset that `[data]` names."""
    inputs = {name or INPUTS: _described(tensor) for name, tensor in tensors_of(dataset.train.inputs).items()}
    is_named = isinstance(dataset.train.inputs, dict)
    kinds: dict[str, Kind] = {"uint8": "images", "float32": "features", "int64": "tokens"}
    spec, images = SPECS.get(settings.name), dataset.train.images
    side = settings.image_size
    if side is None and spec is not None and spec.image_size is not None and images is not None:
        side = images.shape[-1]
    return DataDescription(
        name=dataset.name,
        kind="named" if is_named else kinds[inputs[INPUTS].type],
        inputs=inputs,
        classes=dataset.classes,
        class_names=dataset.class_names,
        client_names=client_names_of(dataset, settings),
        mean=dataset.mean,
        std=dataset.std,
        channels=dataset.channels,
        image_size=side,
        vocabulary=dataset.vocabulary,
        codes=dataset.codes,
        columns=dataset.columns,
        target=(settings.target,) if isinstance(settings.target, str) else tuple(settings.target or ()),
        target_mean=dataset.target_mean,
        target_std=dataset.target_std,
    )


def client_names_of(dataset: Dataset, settings: DataSettings) -> tuple[str, ...]:
    """Return the names of the clients, if they are those that the data brings."""
    return dataset.client_names if settings.partition.kind == "own" else ()


def _described(tensor: Tensor) -> InputTensor:
    return InputTensor(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape[1:]))  # type: ignore[arg-type]


def parse_description(text: str, source: Path | str) -> DataDescription:
    """Return the description in a JSON text; raise `InputError` if it is not one."""
    try:
        found = _DESCRIPTIONS.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{source}: must describe the data of a run ({where}: {first['msg']})") from error
    is_single = [*found.inputs] == [INPUTS]
    tokens = found.inputs.get(INPUTS if is_single else TOKENS)
    has_tokens = tokens is not None and tokens.type == "int64" and len(tokens.shape) == 1 and tokens.shape[0] > 0
    has_columns = not found.codes or found.inputs.get("categories") == InputTensor("int64", (len(found.codes),))
    is_odd = is_single == found.is_named or not found.inputs or not has_columns
    is_odd = is_odd or (found.vocabulary is not None and not has_tokens)
    if is_odd or len(found.class_names) not in (0, found.classes):
        raise InputError(f"{source}: must describe the data of a run (kind, inputs, classes: do not fit each other)")
    check_images(found.blank(), str(source))
    return found


def read_description(path: Path) -> DataDescription:
    """Read data.json."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    return parse_description(text, path)
