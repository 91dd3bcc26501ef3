"""Tables and a figure that need neither training nor data: FLOPs, latency, the toy example."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from fedsol.algorithms import make_algorithm
from fedsol.analysis.cost import costs, step_seconds
from fedsol.analysis.outline import outline
from fedsol.analysis.toy import Toy, ToySettings, fedprox_fixed_point, fedsol_fixed_point, toy
from fedsol.paper.numbers import Key, Number
from fedsol.paper.recipe import Cell, Drawn, Folders, Ours, Recipe
from fedsol.paper.setting import METHODS, experiment, fedsol
from fedsol.paper.tables import CIFAR, LDA, make_recipe

LATENCY_REPETITIONS = 3
LATENCY_WARM_UP = 1
"""Few: a step takes a thread around seven seconds."""
LATENCY_METHODS = {**METHODS, "FedSOL": fedsol(proximal="l2")}


def measured_recipes() -> list[Recipe]:
    """In the order of the paper."""
    return [
        make_recipe(
            "flops",
            lambda _, row, __: (None, {"perturb": row.lower()}),
            [
                "Counted on the paper's CNN with a batch of 50, in the paper's form: two whole passes, without the "
                "proximal loss (delta). fedsol itself makes one pass through the body for the head.",
                "Body: all that is saved is the gradient of the classifier's weights, a ten-thousandth of a step: that "
                "does not explain the paper's 1.96. Head: 1.33 takes a backward pass for two forward ones; it is a "
                "little less, as the first layer needs no gradient of its input.",
            ],
            _flops,
        ),
        make_recipe(
            "latency",
            lambda _, __, column: (None, {"method": column.lower()}),
            [
                "Ours: the median of three steps on one thread of this machine, in its own time, batch of 50, images "
                "of 64 x 64; the paper: an A6000 with images of a size it does not say. Compare the ratios. FedSOL "
                "with the L2 loss, as in the paper."
            ],
            _latency,
        ),
        Recipe(
            "toy",
            "figure",
            "Where FedProx and FedSOL end in the toy example (delta 0.1, 4,000 steps of 0.01 from (1, 1))",
            "fig:fedsol_toy_example",
            _toy_cells,
            unit="",
            digits=6,
            notes=["The paper's number is its formula of the fixed point; mu 0.5 and rho 0.5 are our choice."],
            measure=_toy,
            draw=_draw_toy,
        ),
    ]


def _flops(cells: Sequence[Cell], _root: Path) -> dict[Key, Ours]:
    methods = {row: make_algorithm(fedsol(perturb=row.lower())) for row in ("All", "Body", "Head")}
    measured = costs(outline(experiment(CIFAR, LDA, METHODS["FedAvg"])), methods, repetitions=1).methods
    found = {row.method: (row.two_pass_flops - row.proximal_flops) / measured[0].flops for row in measured}
    return {cell.key: Ours(found[cell.key[1]]) for cell in cells}


def _latency(cells: Sequence[Cell], _root: Path) -> dict[Key, Ours]:
    methods = {cell.key[2]: make_algorithm(LATENCY_METHODS[cell.key[2]]) for cell in cells}
    federation = outline(experiment("imagenet100", LDA, METHODS["FedAvg"], "resnet18"))
    found = step_seconds(federation, methods, LATENCY_REPETITIONS, LATENCY_WARM_UP)
    return {cell.key: Ours(found[cell.key[2]]) for cell in cells}


# --- toy example -----------------------------------------------------------------------------------------------------

TOY_METHODS = {"fedprox": "FedProx", "fedsol": "FedSOL"}
COORDINATES = ("u*", "v*")


@cache
def _paths() -> Toy:
    """Both descents, made once for the numbers and the picture."""
    return toy()


def _toy_cells() -> list[Cell]:
    settings = ToySettings()
    ends = {"fedprox": fedprox_fixed_point(settings), "fedsol": fedsol_fixed_point(settings)}
    return [
        Cell(("", TOY_METHODS[method], name), {"method": method}, paper=Number(value))
        for method, place in ends.items()
        for name, value in zip(COORDINATES, place, strict=True)
    ]


def _toy(cells: Sequence[Cell], _root: Path) -> dict[Key, Ours]:
    ends = {TOY_METHODS[path.method]: path.places[-1] for path in _paths().paths}
    return {cell.key: Ours(ends[cell.key[1]][COORDINATES.index(cell.key[2])]) for cell in cells}


def _draw_toy(_cells: Sequence[Cell], _ours: Mapping[Key, Ours], folders: Folders) -> Drawn:
    from fedsol.plots.toy import draw_toy

    return Drawn(draw_toy(_paths(), folders.out / "toy"))
