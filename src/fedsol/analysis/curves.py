"""Learning curves: accuracy by round, the mean over seeds with a band of one standard deviation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedsol.analysis.base import Analysis, Runs

if TYPE_CHECKING:
    from fedsol.plots.curves import Curve
    from fedsol.plots.style import Figure

    Found = tuple[list[Curve], str]


@dataclass(frozen=True)
class CurvesAnalysis(Analysis["Found"]):
    """The curves, and the name of the accuracy that they show."""

    stem = "curves"

    def measure(self, runs: Runs) -> Found:
        from fedsol.plots.curves import accuracy_curves

        return accuracy_curves([(item.label, [replay.run.rows for replay in item.runs]) for item in runs.series])

    def data(self, found: Found) -> list[Curve]:
        return found[0]

    def draw(self, found: Found, subject: str) -> Figure:
        from fedsol.plots.curves import curves_figure

        return curves_figure(found[0], subject, ylabel=found[1])
