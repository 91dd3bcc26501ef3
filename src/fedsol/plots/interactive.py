"""Learning curves in a user's own figure: the only place that uses pyplot, as notebooks and scripts do."""

from collections.abc import Sequence

from matplotlib import pyplot
from matplotlib.axes import Axes

from fedsol.config.task import Measure
from fedsol.plots.curves import Curve, curve_panel
from fedsol.plots.style import legend_outside


def draw_on(axes: Axes | None, curves: Sequence[Curve], shown: str, measure: Measure) -> Axes:
    """Draw curves on axes (default: a new figure) and return them."""
    if axes is None:
        _, axes = pyplot.subplots(figsize=(7.2, 4.0), layout="constrained")
    lines = curve_panel(axes, curves, "", "round", shown, percent=measure.is_share)
    legend_outside(axes, lines, [curve.label for curve in curves], handlelength=3.2)
    return axes
