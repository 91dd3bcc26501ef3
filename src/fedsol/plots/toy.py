"""Figure: the toy example's two trajectories."""

from pathlib import Path

import numpy as np

from fedsol.analysis.toy import Toy
from fedsol.plots.panels import SEQUENTIAL
from fedsol.plots.style import GREY, INK, fedsol_style, legend_outside, line_look, new_figure, save_pictures


def draw_toy(toy: Toy, stem: Path) -> list[Path]:
    """Both ways from the start over the local loss; crosses are where the paper's formulas say that they end."""
    settings = toy.settings
    places = np.array([place for path in toy.paths for place in path.places] + [(0.0, 0.0), settings.minimum])
    low, high = places.min(axis=0) - 0.12, places.max(axis=0) + 0.12
    with fedsol_style():
        figure = new_figure(7.4, 4.8)
        axes = figure.add_subplot()
        u, v = np.linspace(low[0], high[0], 120), np.linspace(low[1], high[1], 120)
        across, up = np.meshgrid(u, v)
        (ul, vl) = settings.minimum
        loss = 0.5 * (across - ul) ** 2 + 0.5 * settings.delta * (up - vl) ** 2
        axes.contourf(u, v, loss, levels=12, cmap=SEQUENTIAL, alpha=0.35)
        handles, labels = [], []
        for index, path in enumerate(toy.paths):
            look = line_look(index)
            track = np.array(path.places)
            (line,) = axes.plot(track[:, 0], track[:, 1], **look, markevery=(60 + 60 * index, 400), linewidth=2)
            (end,) = axes.plot(
                *path.fixed_point, marker="X", markersize=11, color=look["color"], markeredgecolor="white", linestyle=""
            )
            handles += [line, end]
            labels += [
                path.method,
                f"{path.method}: fixed point ({path.fixed_point[0]:.3f}, {path.fixed_point[1]:.3f})",
            ]
        (ray,) = axes.plot([0, ul], [0, vl], color=GREY, linestyle=":", linewidth=1.0)
        (anchor,) = axes.plot([0], [0], marker="s", color=INK, linestyle="")
        (minimum,) = axes.plot([ul], [vl], marker="*", color=INK, markersize=11, linestyle="")
        handles += [anchor, minimum, ray]
        start = "local minimum and start" if settings.start == settings.minimum else "local minimum"
        labels += ["anchor (global weights)", start, "direction of the minimum"]
        axes.set(xlabel="u", ylabel="v", xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        axes.set_title(
            f"toy example: delta {settings.delta:g}, mu {settings.mu:g}, rho {settings.rho:g}, {settings.steps:,} steps"
        )
        axes.set_aspect("equal")
        legend_outside(axes, handles, labels, handlelength=3.2)
        return save_pictures(figure, stem)
