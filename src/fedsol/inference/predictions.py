"""predict(): what a model says about new samples."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsol.config.task import TaskKind
from fedsol.core.weights import on_device
from fedsol.data.batches import evaluation_batches
from fedsol.data.description import DataDescription
from fedsol.data.types import MASK, Inputs, Split
from fedsol.errors import InputError
from fedsol.federation.federation import choose_device
from fedsol.federation.trained import TrainedModel
from fedsol.inference.samples import Samples, read_samples

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Predictions:
    """One prediction per sample.

    | task | `labels` | `probabilities` |
    |---|---|---|
    | classification | number of the most probable class (N,) | (N, classes) |
    | multilabel | 0 or 1 for each label (N, labels) | (N, labels) |
    | regression | numbers in the units of the data (N, targets) | None |
    | segmentation | class of each pixel (N, H, W) | (N, classes, H, W) |
    | next-token | the token that follows the sample (N,) | (N, vocabulary) |
    """

    samples: tuple[str, ...]
    """Their names: files, or numbers from 0."""
    labels: NDArray[Any]
    probabilities: NDArray[np.float32] | None
    class_names: tuple[str, ...]
    """Names of classes, labels or targets."""
    kind: TaskKind = "classification"

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def label_names(self) -> list[str]:
        """The name of each predicted class; of several labels those that are there, with a space between them."""
        if self.kind == "multilabel":
            return [" ".join(np.array(self.class_names)[row == 1]) for row in self.labels]
        return [self.class_names[label] for label in self.labels.flatten()]

    def to_frame(self) -> "pandas.DataFrame":
        """Return a table with a row per sample: what is predicted, and how probable it is.

        Of a map of classes it has the share of each class.
        """
        import pandas

        table: dict[str, Any] = {"sample": self.samples}
        if self.kind == "segmentation":
            for number, name in enumerate(self.class_names):
                table[f"share_{name}"] = (self.labels == number).mean(axis=(1, 2))
            return pandas.DataFrame(table)
        if self.probabilities is None:
            table |= {name: self.labels[:, number] for number, name in enumerate(self.class_names)}
            return pandas.DataFrame(table)
        table["label"] = self.label_names
        if self.kind != "multilabel":
            table["probability"] = self.probabilities[np.arange(len(self)), self.labels]
        if self.kind != "next-token":
            table |= {f"p_{name}": self.probabilities[:, number] for number, name in enumerate(self.class_names)}
        return pandas.DataFrame(table)

    def to_csv(self) -> str:
        """Return the table as CSV."""
        return str(self.to_frame().to_csv(index=False, lineterminator="\n"))

    def to_npz(self) -> bytes:
        """Return the arrays as the content of an .npz file: samples, labels, probabilities, class_names."""
        arrays = {"samples": np.array(self.samples), "labels": self.labels, "class_names": np.array(self.class_names)}
        if self.probabilities is not None:
            arrays["probabilities"] = self.probabilities
        file = io.BytesIO()
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        return file.getvalue()


def predict(trained: TrainedModel, source: Any) -> Predictions:
    """Predict the samples of a source: whatever form training data may have, without labels."""
    samples, objective = read_samples(source, trained.data), trained.objective
    with tokens_known(trained.data):
        answers = torch.cat([objective.probabilities(outputs) for outputs in outputs_of(trained, samples)])
    labels, probabilities = _decided(answers, objective.kind)
    return Predictions(samples.names, labels, probabilities, trained.data.names, objective.kind)


@contextmanager
def tokens_known(data: DataDescription) -> Iterator[None]:
    """Name what an embedding refuses: a token that it has no row for."""
    try:
        yield
    except IndexError as error:
        if data.vocabulary is None:
            raise
        raise InputError(
            f"inputs: have a token that the model does not know; those of training are 0 to {data.vocabulary - 1}"
        ) from error


def _decided(answers: Tensor, kind: TaskKind) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    if kind == "regression":
        return answers.numpy(), None
    labels = (answers > 0.5).long() if kind == "multilabel" else answers.argmax(dim=1)
    return labels.numpy(), answers.numpy()


@torch.inference_mode()
def outputs_of(trained: TrainedModel, samples: Samples) -> Iterator[Tensor]:
    """Yield the outputs of the model, batch by batch, on the device of the experiment."""
    device = choose_device(trained.experiment.engine.device)
    model, weights = trained.split_model(device), on_device(trained.weights, device)
    model.train(False)
    split = Split(samples.inputs, torch.zeros(len(samples), dtype=torch.int64))
    size = trained.experiment.server.evaluate_batch
    for batch in evaluation_batches(split, trained.data.blank(), size, device):
        outputs = model.outputs(weights, batch.inputs)[1].float()
        if trained.objective.kind == "next-token":
            outputs = _after_the_last(outputs, batch.inputs)
        yield outputs.cpu()


def _after_the_last(outputs: Tensor, inputs: Inputs) -> Tensor:
    """Return the outputs for the token that follows each sample: those at its last token, without padding."""
    if isinstance(inputs, Tensor) or MASK not in inputs:
        return outputs[:, -1]
    places = torch.arange(outputs.shape[1], device=outputs.device)
    last = (places * (inputs[MASK] != 0)).argmax(dim=1)
    return outputs[torch.arange(len(outputs), device=outputs.device), last]
