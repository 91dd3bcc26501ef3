"""The objectives by kind, made from `[task]` and the data."""

import torch
from torch import Tensor

from fedsol.config.tables import PRIVATE
from fedsol.config.task import LOSSES, TaskKind, TaskSettings
from fedsol.core.imports import import_object
from fedsol.core.user_code import describe_user_error
from fedsol.data.types import Dataset
from fedsol.errors import InputError
from fedsol.objectives.base import (
    IGNORED,
    Classification,
    LossFunction,
    Multilabel,
    NextToken,
    Objective,
    Regression,
    Segmentation,
)

OBJECTIVES: dict[TaskKind, type[Objective]] = {
    cls.kind: cls for cls in (Classification, Multilabel, Regression, Segmentation, NextToken)
}


def make_objective(settings: TaskSettings, dataset: Dataset) -> Objective:
    """Return what `[task]` says about this data."""
    own = settings.loss if settings.loss and ":" in settings.loss else None
    return OBJECTIVES[settings.kind](
        classes=dataset.classes,
        measures=settings.measures,
        loss_name=own or settings.loss or LOSSES[settings.kind][0],
        own_loss=_own_loss(own) if own else None,
        class_weights=_class_weights(settings, dataset),
        target_mean=dataset.target_mean,
        target_std=dataset.target_std,
    )


def _own_loss(reference: str) -> LossFunction:
    """Return a user's loss, checked each time it is used."""
    function = import_object(reference, "task.loss")
    if not callable(function):
        raise InputError(f"task.loss: {reference!r} must be a function (got a {type(function).__name__})")

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        try:
            value = function(outputs, targets)
        except Exception as error:  # a user's function may raise anything
            raise InputError(f"task.loss: {reference!r} raised {describe_user_error(error)}") from error
        if not isinstance(value, Tensor) or value.ndim:
            found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise InputError(f"task.loss: {reference!r} must return a tensor with one number, the mean (got {found})")
        if outputs.requires_grad and not value.requires_grad:
            raise InputError(f"task.loss: {reference!r} must be differentiable by the outputs (got a constant)")
        return value

    return loss


def _class_weights(settings: TaskSettings, dataset: Dataset) -> tuple[float, ...]:
    weights, classes = settings.class_weights, dataset.classes
    if weights is None:
        return ()
    if weights != "balanced":
        if len(weights) != classes:
            raise InputError(f"task.class_weights: must have one number for each of {classes} (got {len(weights)})")
        return tuple(weights)
    if dataset.name == PRIVATE:
        raise InputError("task.class_weights: must be a list with private data, as no machine has all labels")
    labels = dataset.train.labels
    if settings.kind == "multilabel":
        there = labels.sum(dim=0)
        return tuple(torch.where(there > 0, (len(labels) - there) / there.clamp_min(1), 1.0).clamp_min(1e-6).tolist())
    counts = torch.bincount(labels[labels != IGNORED].flatten(), minlength=classes)
    return tuple(torch.where(counts > 0, counts.sum() / (classes * counts.clamp_min(1)), 1.0).tolist())
