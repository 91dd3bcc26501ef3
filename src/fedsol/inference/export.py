"""export(): a trained model as one file that needs no fedsol: ONNX, torch's .pt2, or its weights as safetensors."""

import io
import json
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedsol.config.tables import unknown_name
from fedsol.core.files import write_output
from fedsol.core.logs import quiet
from fedsol.core.user_code import describe_user_error
from fedsol.data.description import INPUTS
from fedsol.data.types import Inputs, Number, tensors_of
from fedsol.errors import InputError
from fedsol.federation.trained import TrainedModel
from fedsol.inference.card import model_card
from fedsol.models.split import call

MOST_BYTES = 2_000_000_000
"""Of the weights in one .onnx file."""


class Deployable(nn.Module):
    """A model that takes inputs as they are: normalizes them, then returns logits and probabilities.

    Of a regression it returns the numbers, in the units of the data.
    """

    scale: Tensor
    shift: Tensor
    mean: Tensor
    std: Tensor
    """Of floats that `data.standardize` scales."""
    table: Tensor
    """Mean, standard deviation and the value that replaces a missing one, for each number of a table."""

    def __init__(self, trained: TrainedModel) -> None:
        super().__init__()
        self.model = trained.module()
        self.objective = trained.objective
        self.data = trained.data
        numbers = self.data.columns.numbers if self.data.columns else ()
        table = torch.tensor([[one.mean, one.std, _fill(one)] for one in numbers], dtype=torch.float64)
        self.register_buffer("table", table.reshape(-1, 3))
        std = torch.tensor(trained.data.std, dtype=torch.float64)
        mean = torch.tensor(trained.data.mean, dtype=torch.float64)
        self.register_buffer("scale", (1 / (255 * std)).float()[:, None, None])
        self.register_buffer("shift", (-mean / std).float()[:, None, None])
        along = (-1, *(1 for _ in self.data.input.shape[1:])) if self.data.is_standardized else (-1,)
        self.register_buffer("mean", mean.float().view(along))
        self.register_buffer("std", std.float().view(along))
        self.eval()

    def _scaled(self, numbers: Tensor) -> Tensor:
        mean, std, fill = self.table.unbind(dim=1)
        return ((torch.where(numbers.isnan(), fill, numbers) - mean) / std).float()

    def forward(self, inputs: Inputs) -> tuple[Tensor, ...]:
        """Return the outputs that `output_names` names."""
        if isinstance(inputs, Tensor) and self.data.kind == "images":
            inputs = inputs.float() * self.scale + self.shift
            inputs = inputs.expand(-1, self.data.channels, -1, -1)
        if isinstance(inputs, Tensor) and self.data.is_standardized:
            inputs = (inputs - self.mean) / self.std
        if self.data.columns is not None:
            inputs = (
                {**inputs, "numbers": self._scaled(inputs["numbers"])}
                if isinstance(inputs, dict)
                else self._scaled(inputs)
            )
        outputs = call(self.model, inputs)
        answers = self.objective.probabilities(outputs)
        return (answers,) if self.objective.kind == "regression" else (outputs, answers)


def _fill(number: Number) -> float:
    return math.nan if number.fill is None else number.fill


def output_names(trained: TrainedModel) -> list[str]:
    """Return the names of a graph's outputs."""
    return ["values"] if trained.objective.kind == "regression" else ["logits", "probabilities"]


def export(trained: TrainedModel, path: Path) -> list[Path]:
    """Write the model in the format of the file's suffix, and its model card beside it; return both paths."""
    check_format(path)
    trained = trained.merged()
    content = FORMATS[path.suffix](trained)
    card = path.with_suffix(".md")
    return [write_output(path, content), write_output(card, model_card(trained, path.name))]


def check_format(path: Path) -> None:
    """Raise `InputError` unless the suffix of a file names a format."""
    if path.suffix not in FORMATS:
        raise unknown_name("-o", path.suffix or path.name, FORMATS)


def _to_pt2(trained: TrainedModel) -> bytes:
    file = io.BytesIO()
    torch.export.save(make_graph(trained), file, extra_files={"metadata.json": json.dumps(trained.metadata())})
    return file.getvalue()


def _to_onnx(trained: TrainedModel) -> bytes:
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        raise InputError("-o: '.onnx' requires onnx and onnxscript; run: pip install 'fedsol[export]'")
    if sum(tensor.nbytes for tensor in trained.weights.values()) > MOST_BYTES:
        raise InputError("-o: an .onnx file must have less than 2 GB; use .pt2 or .safetensors")
    with _quiet():
        program = torch.onnx.export(
            make_graph(trained),
            dynamo=True,
            verbose=False,
            input_names=list(trained.data.inputs),
            output_names=output_names(trained),
        )
    assert program is not None
    program.model.metadata_props.update(trained.metadata())
    proto = program.model_proto
    _name_dimensions(proto.graph)
    content: bytes = proto.SerializeToString()
    return content


def _name_dimensions(graph: Any) -> None:
    """Call the free dimensions of an ONNX graph `batch` and `length`, where torch has numbered symbols."""
    names: dict[str, str] = {}
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dimension, name in zip(value.type.tensor_type.shape.dim, ("batch", "length"), strict=False):
            if dimension.dim_param:
                dimension.dim_param = names.setdefault(dimension.dim_param, name)


def _to_safetensors(trained: TrainedModel) -> bytes:
    return trained.to_bytes()


FORMATS: dict[str, Callable[[TrainedModel], bytes]] = {
    ".onnx": _to_onnx,
    ".pt2": _to_pt2,
    ".safetensors": _to_safetensors,
}


def make_graph(trained: TrainedModel) -> torch.export.ExportedProgram:
    """Return the model as a graph of torch's operations, for batches of any size."""
    raw = trained.data.raw_inputs
    blank = {name or INPUTS: tensor for name, tensor in tensors_of(trained.data.blank().train.inputs).items()}
    examples = {name: tensor.to(raw[name].dtype)[[0, 1, 1]] for name, tensor in blank.items()}
    sizes = {name: _free_sizes(tensor, trained) for name, tensor in examples.items()}
    arguments, shapes = (examples, sizes) if trained.data.is_named else (examples[INPUTS], sizes[INPUTS])
    try:
        with _quiet():
            return torch.export.export(Deployable(trained), (arguments,), dynamic_shapes=(shapes,))
    except InputError:
        raise
    except Exception as error:  # torch.export raises many kinds of errors for models that it cannot trace
        raise InputError(
            f"model.name: {trained.experiment.model.name!r} cannot be exported for batches of any size (use "
            f"x.shape[0] in place of len(x), and no branches on values): {describe_user_error(error).splitlines()[0]}"
        ) from error


def _free_sizes(tensor: Tensor, trained: TrainedModel) -> dict[int, Any]:
    """Return the dimensions of an input that may have another size: the batch, and the length of tokens."""
    is_text = trained.data.vocabulary is not None and tensor.dtype == torch.int64 and tensor.ndim == 2
    batch = torch.export.Dim("batch", min=1)
    return {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.AUTO} if is_text else {0: batch}


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what torch's exporter says about itself."""
    with quiet("torch.onnx"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
