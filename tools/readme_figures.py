"""Draw the figures of README.md from results/: `python -m tools.readme_figures`.

`preservation.png` shows results/quickstart/preservation.json, which `make demo` leaves in demo/; `cifar10.png` the
complete runs in results/cifar10-dirichlet-0.1-300.
"""

import json
from itertools import chain
from pathlib import Path
from statistics import fmean

from fedsol.paper.store import LAST, smoothed
from fedsol.plots.curves import Curve, draw_curve, mean_and_std
from fedsol.plots.panels import percent_ticks
from fedsol.plots.style import Figure, fedsol_style, light_grid, line_look, new_figure, save_figure
from fedsol.runs.find import find_runs

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS, IMAGES = REPOSITORY / "results", REPOSITORY / "docs" / "images" / "readme"
NAMES = {"fedavg": "FedAvg", "fedntd": "FedNTD", "fedsol": "FedSOL", "fedsol-column": "FedSOL"}
LOOKS = {"FedAvg": 0, "FedSOL": 1, "FedNTD": 2}
"""The look of a method is the same in every figure."""


def preservation() -> Figure:
    """Return the accuracy of the global model, and the mean of the clients' models after a round of local training."""
    figure = new_figure(5.2, 2.9)
    axes = figure.add_subplot()
    for item in json.loads((RESULTS / "quickstart" / "preservation.json").read_text(encoding="utf-8")):
        rounds = list(chain.from_iterable(item["runs"]))
        before = fmean(one["before"] for one in rounds)
        after = fmean(value for one in rounds for value in one["after"])
        name = NAMES[item["label"]]
        axes.plot([0, 1], [before, after], **line_look(LOOKS[name]), linewidth=2.4, markersize=8)
        axes.annotate(f"{before:.0%}", (0, before), (-10, 0), textcoords="offset points", ha="right", va="center")
        axes.annotate(f"{after:.0%}  {name}", (1, after), (10, 0), textcoords="offset points", ha="left", va="center")
    axes.set(xlim=(-0.35, 1.6), ylim=(0.3, 0.8), ylabel="test accuracy, all classes")
    axes.set_xticks([0, 1], ["global model,\nbefore", "clients' models,\nafter local training"])
    percent_ticks(axes.yaxis)
    light_grid(axes, "y")
    return figure


def cifar10() -> Figure:
    """Return the learning curves of the complete runs: means of ten rounds, bands over three seeds."""
    figure = new_figure(7.2, 3.8)
    axes = figure.add_subplot()
    for folder in ("fedavg", "fedntd", "fedsol-column"):
        lines = [smoothed(run) for run in find_runs([RESULTS / "cifar10-dirichlet-0.1-300" / folder])]
        rounds, name = [number for number, _ in lines[0]], NAMES[folder]
        curve = Curve(name, rounds, [[mean for _, mean in line] for line in lines])
        draw_curve(axes, curve, LOOKS[name], len(LOOKS))
        _, mean, std = mean_and_std(curve)
        text = f"{name} {100 * mean[-1]:.1f} ± {100 * std[-1]:.1f} %"
        offset = {"FedSOL": 7, "FedNTD": -7}.get(name, 0)
        axes.annotate(
            text, (rounds[-1], mean[-1]), (8, offset), textcoords="offset points", va="center", annotation_clip=False
        )
    axes.set(xlabel="round", ylabel=f"test accuracy, mean of {LAST} rounds", xlim=(0, 300), ylim=(0.1, 0.7))
    axes.set_xticks(range(0, 301, 50))
    percent_ticks(axes.yaxis)
    light_grid(axes)
    return figure


def main() -> None:
    """Draw both."""
    with fedsol_style():
        save_figure(preservation(), IMAGES / "preservation.png")
        save_figure(cifar10(), IMAGES / "cifar10.png")


if __name__ == "__main__":
    main()
