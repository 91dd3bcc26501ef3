"""Learning curves: the primary metric by round, the mean over seeds with a band of one standard deviation."""

from dataclasses import dataclass

from fedsol.analysis.base import Analysis, Runs
from fedsol.config.task import Measure
from fedsol.plots.curves import Curve, curves_figure, result_curves
from fedsol.plots.style import Figure

Found = tuple[list[Curve], str, Measure]


@dataclass(frozen=True)
class CurvesAnalysis(Analysis[Found]):
    """The curves, and the metric that they show."""

    stem = "curves"

    def measure(self, runs: Runs) -> Found:
        rows = [(item.label, [replay.run.rows for replay in item.runs]) for item in runs.series]
        shown = runs.series[0].runs[0].run.primary
        return *result_curves(rows, shown), shown

    def data(self, found: Found) -> list[Curve]:
        return found[0]

    def draw(self, found: Found, subject: str) -> Figure:
        return curves_figure(found[0], subject, ylabel=found[1], measure=found[2])
