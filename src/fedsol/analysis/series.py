"""Runs under the names that tell them apart; runs that differ in their seed alone belong together."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fedsol.config.experiment import Experiment
from fedsol.config.overrides import differing_keys

T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True)
class Series(Generic[T]):
    """What was found in the runs of one name: one entry per seed."""

    label: str
    runs: tuple[T, ...]

    def map(self, function: Callable[[T], S]) -> "Series[S]":
        """The same name with something made of every run."""
        return Series(self.label, tuple(function(run) for run in self.runs))


def group(items: Iterable[T], experiment_of: Callable[[T], Experiment]) -> list[Series[T]]:
    """The items by label, in the order in which labels first appear."""
    found = list(items)
    groups: dict[str, list[T]] = {}
    for label, item in zip(labels_for([experiment_of(item) for item in found]), found, strict=True):
        groups.setdefault(label, []).append(item)
    return [Series(label, tuple(runs)) for label, runs in groups.items()]


def labels_for(experiments: Sequence[Experiment]) -> list[str]:
    """`fedsol`, or `fedsol rho=1` where runs of an algorithm differ in more than their seed."""
    labels = []
    for experiment in experiments:
        name = experiment.algorithm["name"]
        rivals = [other for other in experiments if other.algorithm["name"] == name]
        keys = sorted({key for rival in rivals for key in differing_keys(experiment, rival)} - {"seed"})
        settings = [f"{key.removeprefix('algorithm.')}={_value(experiment, key)}" for key in keys]
        labels.append(" ".join([name.rpartition(":")[2], *settings]))
    return labels


def _value(experiment: Experiment, key: str) -> Any:
    value: Any = experiment.model_dump()
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
