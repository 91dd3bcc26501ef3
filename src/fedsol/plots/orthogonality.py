"""Figure: cosine of update and proximal gradient, and the proximal loss, during local learning."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.ticker import PercentFormatter

from fedsol.analysis.callbacks import RoundOrthogonality
from fedsol.analysis.orthogonality import Orthogonality, mean_over_progress
from fedsol.analysis.series import Series
from fedsol.errors import InputError
from fedsol.plots.curves import Curve
from fedsol.plots.panels import curve_panel
from fedsol.plots.style import fedsol_style, new_figure, save_pictures

POINTS = 20


def draw_orthogonality(found: Sequence[Orthogonality], stem: Path, title: str) -> list[Path]:
    """Two panels over the share of local training done; bands are one standard deviation over clients."""
    if not found:
        raise InputError("there is nothing to draw; allowed: one or more rounds of local training")
    cosines = [_curve(item.label, [client.cosine for client in item.clients]) for item in found]
    losses = [_curve(item.label, [client.proximal_loss for client in item.clients]) for item in found]
    with fedsol_style():
        figure = new_figure(9.2, 3.9)
        left, right = figure.subplots(1, 2)
        lines = curve_panel(left, cosines, "cos(g_u, g_p)", "share of local training", "cosine")
        curve_panel(right, losses, "proximal loss", "share of local training", f"{found[0].measure.proximal} loss")
        left.axhline(0.0, color="#222222", linewidth=0.7)
        for axes in (left, right):
            axes.set_xlim(0, 1)
            axes.xaxis.set_major_formatter(PercentFormatter(xmax=1.0))
        figure.legend(lines, [item.label for item in found], loc="outside right upper", handlelength=3.2)
        figure.suptitle(title, x=0.01, ha="left")
        return save_pictures(figure, stem)


def draw_orthogonality_by_round(
    series: Sequence[Series[tuple[RoundOrthogonality, ...]]], stem: Path, title: str
) -> list[Path]:
    """The mean cosine and the proximal loss at the end of local training, over rounds, of runs that wrote them."""
    series = [item for item in series if any(item.runs)]
    if not series:
        raise InputError("there is no orthogonality by round to draw; allowed: runs with --analyze orthogonality")
    with fedsol_style():
        figure = new_figure(9.2, 3.9)
        left, right = figure.subplots(1, 2)
        cosines = [_over_rounds(item, "cosine") for item in series]
        lines = curve_panel(left, cosines, "cos(g_u, g_p), mean over local steps", "round", "cosine")
        losses = [_over_rounds(item, "proximal_loss") for item in series]
        curve_panel(right, losses, "proximal loss at the last step", "round", "loss")
        left.axhline(0.0, color="#222222", linewidth=0.7)
        figure.legend(lines, [item.label for item in series], loc="outside right upper", handlelength=3.2)
        figure.suptitle(title, x=0.01, ha="left")
        return save_pictures(figure, stem)


def _curve(label: str, values: Sequence[Sequence[float | None]]) -> Curve:
    # Curve's rounds are places on any axis; here shares between 0 and 1.
    shares, rows = mean_over_progress(values, POINTS)
    return Curve(label, shares, rows)


def _over_rounds(item: Series[tuple[RoundOrthogonality, ...]], name: str) -> Curve:
    rounds = sorted({row.round for run in item.runs for row in run})
    tables = [{row.round: getattr(row, name) for row in run} for run in item.runs]
    return Curve(item.label, rounds, [[table.get(number) for number in rounds] for table in tables])
