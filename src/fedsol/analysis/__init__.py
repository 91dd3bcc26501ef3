"""Why a method works: analyses of finished runs, one file each. To add one, write its file and a row of `ANALYSES`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from fedsol.errors import InputError

if TYPE_CHECKING:
    from fedsol.analysis.base import Analysis


@dataclasses.dataclass(frozen=True)
class AnalysisSpec:
    """A row of the registry: what `--help` says about an analysis, known without importing it."""

    place: str
    """Module and class."""
    source: Literal["data", "metrics", "nothing"] = "data"
    """What it reads: the data and weights of a run, only its metrics, or no run at all."""
    per_round: bool = False
    """Whether `fedsol run --analyze` can write it in every round (its class is a `RoundAnalysis`)."""
    only_classes: bool = False
    """Whether it compares the classes of samples, which other tasks than classification do not have."""

    def fits(self, kind: str) -> bool:
        """Return whether it can analyze a kind of task."""
        return not self.only_classes or kind == "classification"


ANALYSES: dict[str, AnalysisSpec] = {
    "curves": AnalysisSpec("fedsol.analysis.curves:CurvesAnalysis", "metrics"),
    "partition": AnalysisSpec("fedsol.analysis.partition:PartitionAnalysis"),
    "orthogonality": AnalysisSpec("fedsol.analysis.orthogonality:OrthogonalityAnalysis", per_round=True),
    "divergence": AnalysisSpec("fedsol.analysis.divergence:DivergenceAnalysis", per_round=True),
    "preservation": AnalysisSpec(
        "fedsol.analysis.preservation:PreservationAnalysis", per_round=True, only_classes=True
    ),
    "strength": AnalysisSpec("fedsol.analysis.strength:StrengthAnalysis", per_round=True),
    "landscape": AnalysisSpec("fedsol.analysis.landscape:LandscapeAnalysis"),
    "cost": AnalysisSpec("fedsol.analysis.cost:CostAnalysis", "nothing"),
    "toy": AnalysisSpec("fedsol.analysis.toy:ToyAnalysis", "nothing"),
}
"""Every analysis by its name, in the order of `--what all`."""


def names_of(**values: object) -> list[str]:
    """Return the names of the analyses whose row has these values."""
    return [
        name for name, spec in ANALYSES.items() if all(getattr(spec, key) == value for key, value in values.items())
    ]


def check_task(names: Iterable[str], kind: str) -> None:
    """Raise `InputError` if an analysis does not fit the kind of task."""
    for name in names:
        if not ANALYSES[name].fits(kind):
            raise InputError(f"{name}: compares classes of samples, and task.kind is {kind!r}; it fits classification")


def make_analysis(name: str, options: Mapping[str, Any] | None = None) -> Analysis[Any]:
    """Return an analysis with the options that apply to it."""
    module, _, kind = ANALYSES[name].place.partition(":")
    analysis: type[Analysis[Any]] = getattr(import_module(module), kind)
    fields = {field.name for field in dataclasses.fields(analysis)}
    return analysis(**{key: value for key, value in (options or {}).items() if key in fields})
