"""Task and Point: what a gradient rule may ask of one client's model. Training uses autograd only here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from fedsol.core.randomness import random_state, set_random_state
from fedsol.core.weights import Weights, clone
from fedsol.data.batches import Batch
from fedsol.models.split import SplitModel
from fedsol.objectives.base import CLASSES, Objective

Where = Literal["all", "body", "head"]


@dataclass(frozen=True)
class Outputs:
    """The result of a pass through the model: the features that enter the head, and the logits that leave it."""

    features: Tensor
    logits: Tensor

    @property
    def vectors(self) -> Tensor:
        """The features as one row per sample, in full precision: those of a reduced pass are too coarse for a loss."""
        return self.features.flatten(1).to(torch.promote_types(self.features.dtype, torch.float32))


Loss = Callable[[Outputs, "Point"], Tensor]


def task_loss(outputs: Outputs, point: Point) -> Tensor:
    """Return the loss of the task on the point's batch; for classes the paper's, cross-entropy."""
    return point.task.objective.loss(outputs.logits, point.batch.labels)


@dataclass(frozen=True)
class Task:
    """One client's job as a gradient rule sees it: a model, the anchor it came with, and what it learns.

    Batch norm: running statistics (`buffers`) follow the unperturbed passes only; the anchor is always in evaluation
    mode with the statistics it was received with.
    """

    model: SplitModel
    anchor: Weights
    anchor_buffers: Weights
    buffers: Weights
    lr: float
    momentum: float = 0.0
    objective: Objective = CLASSES
    local_loss: Loss = task_loss
    labels: Callable[[], Tensor] | None = None
    """The labels of the client's training samples, if they are known."""

    def names(self, where: Where) -> tuple[str, ...]:
        """Return the names of the parameters of a part of the model."""
        names = {"all": self.model.names, "body": self.model.body_names, "head": self.model.head_names}[where]
        if not names:
            raise ValueError(f"this model has no parameters in its {where}")
        return names

    @cached_property
    def label_counts(self) -> Tensor:
        """How many training samples of each class the client has."""
        if self.labels is None:
            raise ValueError("label_counts: this task does not know the client's labels")
        counts = torch.bincount(self.labels(), minlength=self.objective.classes)
        return counts.to(next(iter(self.anchor.values())).device)

    def at(self, weights: Weights, batch: Batch) -> Point:
        """Return the model at these weights on this batch; nothing is computed yet."""
        return Point(self, weights, batch)


class Point:
    """A model at given weights on one batch. Each pass through it is made on first use, and only once."""

    def __init__(self, task: Task, weights: Weights, batch: Batch, origin: Point | None = None) -> None:
        self.task = task
        self.weights = weights
        self.batch = batch
        self._origin = origin
        self._statistics_are_updated = False
        self._constant: dict[str, Outputs] = {}
        self._draws: Tensor | None = None

    def moved(self, step: Weights) -> Point:
        """Return the point `weights + step`. A step of the head alone shares this point's pass through the body."""
        there = {n: w + step[n] if n in step else w for n, w in self.weights.items()}
        return type(self)(self.task, there, self.batch, self)

    def gradient(self, loss: Loss | None = None, where: Where = "all", keep: bool = False) -> tuple[Weights, Tensor]:
        """Return the gradient of a loss (default: the local one) for a part of the weights, and the loss.

        `keep` leaves the pass usable for another gradient at this point.
        """
        names = self.task.names(where)
        outputs = self._head_outputs() if where == "head" else self.outputs
        value = (loss or self.task.local_loss)(outputs, self)
        leaves = [self._leaves[name] for name in names]
        found = torch.autograd.grad(value, leaves, retain_graph=keep, allow_unused=True, materialize_grads=True)
        return dict(zip(names, found, strict=True)), value.detach()

    @cached_property
    def outputs(self) -> Outputs:
        """Features and logits, in training mode."""
        if "features" in vars(self) or self._shares_body:
            return Outputs(self.features, self._logits(self.features))
        return Outputs(*self.task.model.outputs(self._weights_for_pass(), self.batch.inputs))

    @cached_property
    def features(self) -> Tensor:
        """The features that enter the head, in training mode."""
        if self._origin is not None and self._shares_body:
            return self._origin.features
        if "outputs" in vars(self):
            return self.outputs.features
        return self.task.model.features(self._weights_for_pass(), self.batch.inputs)

    @property
    def anchor_outputs(self) -> Outputs:
        """The anchor's outputs on this batch."""
        return self.constant_outputs("anchor", {**self.task.anchor, **self.task.anchor_buffers})

    def constant_outputs(self, name: str, weights: Weights) -> Outputs:
        """Return the outputs of other, fixed weights: in evaluation mode, without a graph, once for each name."""
        if self._origin is not None:
            return self._origin.constant_outputs(name, weights)
        if name not in self._constant:
            model = self.task.model
            model.train(False)
            with torch.inference_mode():
                features, logits = model.outputs(weights, self.batch.inputs)
            model.train(True)
            self._constant[name] = Outputs(features.clone(), logits.clone())
        return self._constant[name]

    @cached_property
    def _shares_body(self) -> bool:
        origin = self._origin
        return origin is not None and all(self.weights[n] is origin.weights[n] for n in self.task.model.body_names)

    @cached_property
    def _leaves(self) -> Weights:
        """The leaves of the graph of `outputs`; a shared body has its own."""
        if self._origin is not None and self._shares_body:
            return {**self._origin._leaves, **_leaves_of(self.weights, self.task.model.head_names)}
        return _leaves_of(self.weights, self.task.model.names)

    def _head_outputs(self) -> Outputs:
        """Return outputs whose graph ends at the features: enough for a gradient of the head."""
        features = self.features.detach()
        return Outputs(features, self._logits(features))

    def _logits(self, features: Tensor) -> Tensor:
        return self.task.model.logits({**self._leaves, **self.task.buffers}, features)

    def _weights_for_pass(self) -> Weights:
        """Return what a pass through the body takes, with the same draws as other passes on the batch."""
        buffers = self._buffers_for_pass()
        self._repeat_draws()
        return {**self._leaves, **buffers}

    def _buffers_for_pass(self) -> Weights:
        """Return the task's own buffers for the first unperturbed pass on a batch, copies for every other."""
        if not self.task.buffers:
            return {}
        if self._origin is not None:
            self._origin._update_statistics()
        elif not self._statistics_are_updated:
            self._statistics_are_updated = True
            return self.task.buffers
        return clone(self.task.buffers)

    def _update_statistics(self) -> None:
        """Make the unperturbed pass for its running statistics, if nothing else did."""
        if not self._statistics_are_updated:
            buffers = self._buffers_for_pass()
            self._repeat_draws()
            with torch.no_grad():
                self.task.model.features({**self.weights, **buffers}, self.batch.inputs)

    def _repeat_draws(self) -> None:
        """Let every pass on a batch drop out the same units: a perturbation moves weights only."""
        first, device = self._origin or self, self.batch.labels.device
        if first._draws is None:
            first._draws = random_state(device)
        else:
            set_random_state(device, first._draws)


def _leaves_of(weights: Weights, names: tuple[str, ...]) -> Weights:
    return {name: weights[name].detach().requires_grad_() for name in names}
