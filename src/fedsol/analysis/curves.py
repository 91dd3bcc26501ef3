"""Learning curves: accuracy by round, the mean over seeds with a band of one standard deviation."""

from dataclasses import dataclass

from fedsol.analysis.base import Analysis, Runs
from fedsol.plots.curves import Curve, accuracy_curves, curves_figure
from fedsol.plots.style import Figure

Found = tuple[list[Curve], str]


@dataclass(frozen=True)
class CurvesAnalysis(Analysis[Found]):
    """The curves, and the name of the accuracy that they show."""

    stem = "curves"

    def measure(self, runs: Runs) -> Found:
        return accuracy_curves([(item.label, [replay.run.rows for replay in item.runs]) for item in runs.series])

    def data(self, found: Found) -> list[Curve]:
        return found[0]

    def draw(self, found: Found, subject: str) -> Figure:
        return curves_figure(found[0], subject, ylabel=found[1])
