"""`[task]`: what a model learns, and the losses and metrics that each kind of task has by name."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import ValidationInfo, field_validator

from fedsol.config.fields import Positive
from fedsol.config.tables import Settings, setting, shown, suggestion

TaskKind = Literal["classification", "multilabel", "regression", "segmentation", "next-token"]
KINDS: tuple[TaskKind, ...] = get_args(TaskKind)
CLASS_KINDS: tuple[TaskKind, ...] = ("classification", "segmentation", "next-token")
"""Tasks whose every answer is one of several classes: of a sample, a pixel or a token."""
SAMPLE_KINDS: tuple[TaskKind, ...] = ("classification", "multilabel", "regression")
"""Tasks with one row of outputs per sample."""
NOUNS: dict[TaskKind, str] = {
    "classification": "classification",
    "multilabel": "task with several labels",
    "regression": "regression",
    "segmentation": "segmentation",
    "next-token": "next-token task",
}

LOSSES: dict[TaskKind, tuple[str, ...]] = {
    "classification": ("cross-entropy", "focal"),
    "multilabel": ("binary-cross-entropy",),
    "regression": ("squared-error", "absolute-error", "huber"),
    "segmentation": ("cross-entropy", "focal"),
    "next-token": ("cross-entropy",),
}
"""The losses of each kind of task; the first is the default."""


@dataclass(frozen=True)
class Measure:
    """A metric by name: the tasks it fits, how it reads, and which way is better."""

    name: str
    title: str
    kinds: tuple[TaskKind, ...] = KINDS
    higher_is_better: bool = True
    is_share: bool = True
    """Whether it lies between 0 and 1 and is written in percent."""

    @property
    def key(self) -> str:
        """Its name in a row of metrics, after `test_` or `validation_`."""
        return self.name.rpartition(":")[2].replace("-", "_")

    def better(self, first: float, second: float) -> bool:
        """Return whether the first value is better than the second."""
        return first > second if self.higher_is_better else first < second

    def text(self, value: float | None) -> str:
        """Return a value as people read it."""
        if value is None:
            return "–"
        return f"{100 * value:.2f} %" if self.is_share else f"{value:.4g}"

    def spread_text(self, mean: float, std: float) -> str:
        """Return a mean and a standard deviation as people read them."""
        return f"{100 * mean:.2f} ± {100 * std:.2f} %" if self.is_share else f"{mean:.4g} ± {std:.2g}"

    def best(self, values: Iterable[float]) -> float | None:
        """Return the best of some values; None without any."""
        return max(values, default=None) if self.higher_is_better else min(values, default=None)


_MEASURES = (
    Measure("accuracy", "accuracy", (*CLASS_KINDS, "multilabel")),
    Measure("balanced-accuracy", "balanced accuracy", CLASS_KINDS),
    Measure("macro-f1", "macro F1", (*CLASS_KINDS, "multilabel")),
    Measure("auroc", "AUROC", ("classification", "multilabel")),
    Measure("ece", "expected calibration error", ("classification",), higher_is_better=False),
    Measure("brier", "Brier score", ("classification", "multilabel"), higher_is_better=False, is_share=False),
    Measure("confusion", "confusion matrix", ("classification", "segmentation"), is_share=False),
    Measure("mae", "mean absolute error", ("regression",), higher_is_better=False, is_share=False),
    Measure("rmse", "root mean squared error", ("regression",), higher_is_better=False, is_share=False),
    Measure("r2", "R²", ("regression",), is_share=False),
    Measure("dice", "Dice", ("segmentation",)),
    Measure("iou", "IoU", ("segmentation",)),
    Measure("perplexity", "perplexity", ("next-token",), higher_is_better=False, is_share=False),
)
MEASURES: dict[str, Measure] = {measure.name: measure for measure in _MEASURES}
DEFAULT_METRICS: dict[TaskKind, tuple[str, ...]] = {
    "classification": ("accuracy",),
    "multilabel": ("macro-f1", "accuracy"),
    "regression": ("rmse", "mae", "r2"),
    "segmentation": ("iou", "dice", "accuracy"),
    "next-token": ("perplexity", "accuracy"),
}


RESERVED = ("loss", "clients", "std", "worst", *(measure.key for measure in _MEASURES))
"""What columns of metrics.jsonl are called after `test_`, `validation_` or `held_out_`, whatever the task's metrics."""


class TaskSettings(Settings):
    """`[task]`: what the model learns."""

    kind: TaskKind = setting(
        "classification",
        "one class per sample; several labels; real numbers; a class per pixel; the next token",
    )
    loss: str | None = setting(None, "the local loss, by name or `module:function` (default: the first of the kind)")
    metrics: list[str] = setting(
        [], "metrics by name or `module:function`; the first is the primary one (default: those of the kind)"
    )
    class_weights: Literal["balanced"] | list[Positive] | None = setting(
        None, "factor of each class in the training loss; `balanced` makes rare classes count as much as frequent ones"
    )

    @field_validator("class_weights", mode="before")
    @classmethod
    def _check_class_weights(cls, value: Any, known: ValidationInfo) -> Any:
        if value is not None and known.data.get("kind") == "regression":
            raise ValueError("must not be set for regression, which has no classes")
        if value is not None and value != "balanced" and not _are_positive(value):
            raise ValueError(f"must be 'balanced' or a list with a positive number for each class (got {shown(value)})")
        return value

    @field_validator("loss")
    @classmethod
    def _check_loss(cls, name: str | None, known: ValidationInfo) -> str | None:
        kind = known.data.get("kind")
        if name is not None and kind is not None and ":" not in name and name not in LOSSES[kind]:
            names = [*LOSSES[kind], "module:function"]
            raise ValueError(f"unknown value {name!r} for {kind}; {suggestion(name, names)}")
        return name

    @field_validator("metrics")
    @classmethod
    def _check_metrics(cls, names: list[str], known: ValidationInfo) -> list[str]:
        for name in names:
            _check_metric(name, known.data.get("kind"))
            _check_key(name, names)
        if names and names[0] == "confusion":
            raise ValueError("the first is the primary one and must be a number (got 'confusion')")
        return names

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The metrics; the first is the primary one."""
        return tuple(measure_named(name) for name in self.metrics or DEFAULT_METRICS[self.kind])

    @property
    def primary(self) -> Measure:
        """The metric that tables, plots, sweeps and reports show."""
        return self.measures[0]


ACCURACY = MEASURES["accuracy"]


def primary_of(settings: Mapping[str, Any]) -> Measure:
    """Return the primary metric of an experiment, given its settings with dotted keys, which may be damaged."""
    names = settings.get("task.metrics") or DEFAULT_METRICS.get(settings.get("task.kind", KINDS[0]))
    return measure_named(str(names[0])) if isinstance(names, list | tuple) else ACCURACY


def measure_named(name: str) -> Measure:
    """Return a metric by its name; of a user's own `module:function`, more is better."""
    return MEASURES.get(name) or Measure(name, name.rpartition(":")[2], is_share=False)


def _are_positive(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf for value in values
    )


def _check_key(name: str, names: Iterable[str]) -> None:
    """Raise `ValueError` if two columns of metrics.jsonl would have the same name."""
    key = measure_named(name).key
    if ":" in name and key in RESERVED:
        raise ValueError(f"{name!r} must have another name: there is a column for {key!r} already")
    if [measure_named(other).key for other in names].count(key) > 1:
        raise ValueError(f"must have different names (got {key!r} twice)")


def _check_metric(name: str, kind: TaskKind | None) -> None:
    if kind is None:  # which is an error of its own
        return
    fitting = [measure.name for measure in _MEASURES if kind in measure.kinds]
    if ":" in name or name in fitting:
        return
    if name in MEASURES:
        kinds = ", ".join(MEASURES[name].kinds)
        raise ValueError(f"{name!r} does not fit {kind}, but {kinds}; allowed: {', '.join(fitting)}, module:function")
    raise ValueError(f"unknown value {name!r}; {suggestion(name, [*fitting, 'module:function'])}")
