"""Figure: what a local step of each method costs, as multiples of FedAvg's."""

from pathlib import Path

from fedsol.analysis.cost import Costs
from fedsol.plots.panels import bar_panel
from fedsol.plots.style import INK, fedsol_style, new_figure, save_pictures


def draw_costs(costs: Costs, stem: Path, title: str) -> list[Path]:
    """FLOPs (as computed, and in the paper's two passes), time and peak memory, beside FedAvg's."""
    names = [row.method for row in costs.methods]
    computed = costs.relative(lambda row: row.flops)
    base = costs.methods[0].flops
    two_pass = {row.method: row.two_pass_flops / base for row in costs.methods}
    seconds, memory = costs.relative(lambda row: row.seconds), costs.relative(lambda row: row.peak_bytes)
    with fedsol_style():
        figure = new_figure(9.6, 1.9 + 0.34 * len(names))
        flops, time, bytes_ = figure.subplots(1, 3, sharey=True, width_ratios=(1.25, 1, 1))
        bars = {
            "as fedsol computes it": [(computed[name], 0.0) for name in names],
            "in two whole passes": [(two_pass[name], 0.0) for name in names],
        }
        patches = bar_panel(flops, names, bars, "FLOPs", "× FedAvg", horizontal=True)
        bar_panel(time, names, {"": [(seconds[name], 0.0) for name in names]}, "time", "× FedAvg", horizontal=True)
        bar_panel(
            bytes_, names, {"": [(memory[name], 0.0) for name in names]}, "peak memory", "× FedAvg", horizontal=True
        )
        for axes, values in ((time, seconds), (bytes_, memory)):
            for place, name in enumerate(names):
                axes.annotate(
                    f"{values[name]:.2f}",
                    (values[name], place),
                    (3, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=7.5,
                )
        for place, name in enumerate(names):
            for shift, value in ((-0.2, computed[name]), (0.2, two_pass[name])):
                flops.annotate(
                    f"{value:.2f}", (value, place + shift), (3, 0), textcoords="offset points", va="center", fontsize=7
                )
        for axes in (flops, time, bytes_):
            axes.axvline(1.0, color=INK, linewidth=0.7)
            axes.margins(x=0.15)
        figure.legend(patches, list(bars), loc="outside lower left", ncols=2)
        figure.suptitle(title, x=0.01, ha="left")
        return save_pictures(figure, stem)
