"""TrainedModel: weights, and everything that is needed to use them without the run and its data."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from torch import nn

from fedsol.config.algorithm import without_own_code
from fedsol.config.experiment import Experiment, parse_toml
from fedsol.core.files import tensors_from_bytes, tensors_metadata, tensors_to_bytes, write_output
from fedsol.core.randomness import key_for
from fedsol.core.weights import Weights
from fedsol.data.description import DataDescription, parse_description
from fedsol.errors import InputError
from fedsol.federation.federation import model_shape
from fedsol.models import ModelShape
from fedsol.models.build import autocast_of, build_settings, split_model
from fedsol.models.lora import merge
from fedsol.models.split import (
    SplitModel,
    check_frozen,
    frozen_parameters,
    hash_tensors,
    load_weights,
    named_state,
)
from fedsol.objectives import make_objective
from fedsol.objectives.base import Objective

FORMAT = "fedsol-model/1"


@dataclass(frozen=True)
class TrainedModel:
    """Weights with the experiment that trained them (complete, as in a run directory) and their data's description."""

    experiment: Experiment
    weights: Weights
    data: DataDescription
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What is known about how it was made, as JSON values: for its model card."""
    frozen_sha256: str = ""
    """Hash of the frozen weights that it was trained with, which the model's factory makes; empty if not known."""

    @cached_property
    def objective(self) -> Objective:
        """What the model learned, as predictions see it: without the loss, which may be code of the user's own."""
        task = self.experiment.task.model_copy(update={"class_weights": None, "loss": None})
        return make_objective(task, self.data.blank())

    @property
    def tested_objective(self) -> Objective:
        """What the model learned, as tests see it: all classes count the same."""
        return make_objective(self.experiment.task.model_copy(update={"class_weights": None}), self.data.blank())

    @property
    def shape(self) -> ModelShape:
        """What the model is sized for."""
        return model_shape(self.data.blank(), self.objective)

    def module(self) -> nn.Module:
        """Return the model with these weights, in evaluation mode, on the CPU: a new one, without hooks of fedsol.

        Its inputs are normalized, as in training.
        """
        return load_weights(self._untrained(), self.weights)

    def split_model(self, device: torch.device) -> SplitModel:
        """Return the model as a function of weights, on a device and in the precision of the experiment."""
        autocast = autocast_of(self.experiment.engine.precision)
        return split_model(self._untrained().to(device), self.experiment.model.head, self.shape, autocast)

    @torch.no_grad()
    def _untrained(self) -> nn.Module:
        """Return the model as its factory makes it, with the frozen weights that these were trained with."""
        model = build_settings(self.experiment.model, self.shape, self._seed)
        frozen = frozen_parameters(model)
        if frozen.keys() <= self.weights.keys():
            for name, tensor in frozen.items():
                tensor.copy_(self.weights[name])
        elif self.frozen_sha256:
            check_frozen(hash_tensors(frozen), self.frozen_sha256, "that the weights were trained with")
        return model

    def merged(self) -> Self:
        """Return the model with its frozen weights among the others, and with the adapters of `[model.lora]` merged."""
        if self.experiment.model.lora.rank is None:
            return replace(self, weights={**self.weights, **frozen_parameters(self._untrained())})
        model = self.module()
        merge(model)
        weights = {name: tensor.detach() for name, tensor in named_state(model).items()}
        return replace(self, experiment=self.experiment.override({"model.lora": {}}), weights=weights, frozen_sha256="")

    @property
    def _seed(self) -> int:
        """Models may have random constants that are no weights."""
        return key_for(self.experiment.seed, "model")

    def metadata(self) -> dict[str, str]:
        """Return what an exported file says about the model, each value a text or JSON."""
        data = self.data
        return {
            "format": FORMAT,
            "task": self.experiment.task.kind,
            "class_names": json.dumps(data.names),
            "input_shape": json.dumps({name: tensor.shape for name, tensor in data.raw_inputs.items()}),
            "input_type": json.dumps({name: tensor.type for name, tensor in data.raw_inputs.items()}),
            "data": data.to_json(),
            "experiment": self.experiment.to_toml(),
            "facts": json.dumps(self.facts),
            **({"frozen_sha256": self.frozen_sha256} if self.frozen_sha256 else {}),
        }

    def save(self, path: Path) -> Path:
        """Write weights and metadata as one safetensors file, which `load` reads."""
        return write_output(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return tensors_to_bytes(self.weights, self.metadata())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file that `save` wrote; code that its experiment names is not imported."""
        try:
            content = path.read_bytes()
            weights, metadata = tensors_from_bytes(content), tensors_metadata(content)
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error
        except (SafetensorError, KeyError, ValueError) as error:
            raise InputError(f"{path}: must be a safetensors file ({error})") from error
        if metadata.get("format") != FORMAT:
            raise InputError(f"{path}: must be a model that fedsol saved: no metadata of the format {FORMAT!r}")
        data = parse_description(metadata.get("data", ""), path)
        with without_own_code():
            experiment = Experiment(**parse_toml(metadata.get("experiment", ""), str(path)))
        if experiment.model.name is None:
            raise InputError(f"{path}: model.name: is missing")
        try:
            facts = dict(json.loads(metadata.get("facts", "{}")))
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}: facts: must be a JSON object ({error})") from error
        return cls(experiment, weights, data, facts, metadata.get("frozen_sha256", ""))
