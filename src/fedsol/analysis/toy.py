"""FedSOL's toy example: two weights, one local minimum, and where each way of staying near the anchor ends."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedsol.algorithms import gradients
from fedsol.algorithms.proximal import L2
from fedsol.algorithms.task import Outputs, Point, Task
from fedsol.analysis.base import Analysis, Runs
from fedsol.core.weights import Weights, add
from fedsol.data.batches import Batch
from fedsol.errors import InputError
from fedsol.models.split import SplitModel
from fedsol.plots.panels import SEQUENTIAL
from fedsol.plots.style import GRAY, INK, Figure, legend_outside, line_look, new_figure

Place = tuple[float, float]
WEIGHT = "head.weight"


@dataclass(frozen=True)
class ToySettings:
    """The paper's: the anchor is (0, 0), the local loss `(u - u_l)^2 / 2 + delta (v - v_l)^2 / 2`, Lambda fixed."""

    minimum: Place = (1.0, 1.0)
    """(u_l, v_l)."""
    start: Place = (1.0, 1.0)
    delta: float = 0.1
    mu: float = 0.5
    """Factor of FedProx's `1/2 ||w||^2`."""
    rho: float = 0.5
    """Strength of FedSOL's perturbation."""
    lr: float = 0.01
    steps: int = 4000


@dataclass(frozen=True)
class Path:
    """The path of one method from the start, and where the paper says it ends."""

    method: str
    places: tuple[Place, ...]
    fixed_point: Place


@dataclass(frozen=True)
class Toy:
    """Both trajectories (FedSOL's appendix "Toy Example")."""

    settings: ToySettings
    paths: tuple[Path, ...]


def toy(settings: ToySettings = ToySettings()) -> Toy:  # noqa: B008 (frozen)
    """Descend with fedsol's own gradient rules on a model of two weights, in double precision."""
    distance = math.hypot(*settings.minimum)
    if not 0 <= settings.rho < distance:
        raise InputError(f"toy: rho: must be 0 to below {distance:g}, where the minimum is (got {settings.rho})")
    task, batch = _task(settings), Batch(torch.ones(1, 1, dtype=torch.float64), torch.tensor([0]))
    how = gradients.Perturbation(settings.rho, "fixed")
    rules: dict[str, Callable[[Weights], Weights]] = {
        "fedprox": lambda weights: gradients.auxiliary(task, weights, batch, L2(), settings.mu)[0],
        "fedsol": lambda weights: gradients.perturbed(task, weights, batch, L2(), how)[0],
    }
    ends = {"fedprox": fedprox_fixed_point(settings), "fedsol": fedsol_fixed_point(settings)}
    paths = []
    for name, rule in rules.items():
        weights = {WEIGHT: torch.tensor(settings.start, dtype=torch.float64)[:, None]}
        places = [settings.start]
        for _ in range(settings.steps):
            weights = add(weights, rule(weights), -settings.lr)
            u, v = weights[WEIGHT].flatten().tolist()
            places.append((u, v))
        paths.append(Path(name, tuple(places), ends[name]))
    return Toy(settings, tuple(paths))


def fedprox_fixed_point(settings: ToySettings) -> Place:
    """Return `(u_l / (1 + mu), delta v_l / (delta + mu))`: turned toward the direction of greater curvature."""
    (u, v), delta, mu = settings.minimum, settings.delta, settings.mu
    return u / (1 + mu), delta * v / (delta + mu)


def fedsol_fixed_point(settings: ToySettings) -> Place:
    """Return the place in the direction of the local minimum, `rho` nearer to the anchor."""
    u, v = settings.minimum
    shorter = 1 - settings.rho / math.hypot(u, v)
    return u * shorter, v * shorter


def _task(settings: ToySettings) -> Task:
    """Return the local loss of a model whose two logits are its two weights, for an input of 1."""
    minimum = torch.tensor(settings.minimum, dtype=torch.float64)
    curvature = torch.tensor([1.0, settings.delta], dtype=torch.float64)

    def loss(outputs: Outputs, _point: Point) -> Tensor:
        return 0.5 * (curvature * (outputs.logits[0] - minimum) ** 2).sum()

    module = nn.Sequential(OrderedDict(head=nn.Linear(1, 2, bias=False, dtype=torch.float64)))
    model = SplitModel(module, "head", torch.ones(1, 1, dtype=torch.float64))
    anchor = {WEIGHT: torch.zeros(2, 1, dtype=torch.float64)}
    return Task(model, anchor, {}, {}, settings.lr, local_loss=loss)


@dataclass(frozen=True)
class ToyAnalysis(Analysis[Toy]):
    """Both trajectories over the local loss; crosses mark where they end by the paper's formulas."""

    stem = "toy"

    def measure(self, runs: Runs) -> Toy:
        return toy()

    def draw(self, found: Toy, subject: str) -> Figure:
        settings = found.settings
        places = np.array([place for path in found.paths for place in path.places] + [(0.0, 0.0), settings.minimum])
        low, high = places.min(axis=0) - 0.12, places.max(axis=0) + 0.12
        figure = new_figure(7.4, 4.8)
        axes = figure.add_subplot()
        u, v = np.linspace(low[0], high[0], 120), np.linspace(low[1], high[1], 120)
        ul, vl = settings.minimum
        loss = 0.5 * (u[None, :] - ul) ** 2 + 0.5 * settings.delta * (v[:, None] - vl) ** 2
        axes.contourf(u, v, loss, levels=12, cmap=SEQUENTIAL, alpha=0.35)
        for index, path in enumerate(found.paths):
            look, (right, up) = line_look(index), path.fixed_point
            look["markevery"] = (60 + 60 * index, 400)
            axes.plot(*np.array(path.places).T, **look, linewidth=2, label=path.method)
            cross = {"marker": "X", "markersize": 11, "color": look["color"], "markeredgecolor": "white"}
            axes.plot(right, up, **cross, linestyle="", label=f"{path.method}: fixed point ({right:.3f}, {up:.3f})")
        start = "local minimum and start" if settings.start == settings.minimum else "local minimum"
        axes.plot([0], [0], marker="s", color=INK, linestyle="", label="anchor (global weights)")
        axes.plot([ul], [vl], marker="*", color=INK, markersize=11, linestyle="", label=start)
        axes.plot([0, ul], [0, vl], color=GRAY, linestyle=":", linewidth=1.0, label="direction of the minimum")
        axes.set(xlabel="u", ylabel="v", xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        axes.set_title(
            f"toy example: delta {settings.delta:g}, mu {settings.mu:g}, rho {settings.rho:g}, {settings.steps:,} steps"
        )
        legend_outside(axes, *axes.get_legend_handles_labels(), handlelength=3.2)
        return figure

    def say(self, found: Toy) -> Iterator[str]:
        for path in found.paths:
            (u, v), (right, up) = path.places[-1], path.fixed_point
            yield f"{path.method}: ends at ({u:.4f}, {v:.4f}), fixed point ({right:.4f}, {up:.4f})"
