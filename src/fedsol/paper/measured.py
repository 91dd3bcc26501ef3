"""Tables and figures that need no training: FLOPs, latency, the toy example, partitions."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedsol.algorithms import make_algorithm
from fedsol.analysis.cost import MethodCost, costs
from fedsol.analysis.outline import outline
from fedsol.analysis.toy import toy
from fedsol.paper.numbers import Key, Number
from fedsol.paper.recipe import Cell, Ours, Recipe
from fedsol.paper.setting import METHODS, experiment, fedsol
from fedsol.paper.tables import CIFAR, LDA, make_recipe

LATENCY_REPETITIONS = 3


def measured_recipes() -> list[Recipe]:
    """In the order of the paper."""
    return [
        make_recipe(
            "flops",
            lambda _, row, __: (None, {"perturb": row.lower()}),
            [
                "Counted on the paper's CNN with a batch of 50, in the paper's form: two whole passes, without the "
                "proximal loss (delta). fedsol itself makes one pass through the body for the head."
            ],
            _flops,
        ),
        make_recipe(
            "latency",
            lambda _, __, column: (None, {"method": column.lower()}),
            [
                "Ours: median of one thread of this machine, batch of 50, images of 64 x 64; the paper: an A6000 with "
                "images of a size it does not say. Compare the ratios. FedSOL with the L2 loss, as in the paper."
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


def _flops(cells: Sequence[Cell]) -> dict[Key, Ours]:
    methods = {row: make_algorithm(fedsol(perturb=row.lower())) for row in ("All", "Body", "Head")}
    measured = costs(outline(experiment(CIFAR, LDA, METHODS["FedAvg"])), methods, repetitions=1).methods
    found = {row.method: (row.two_pass_flops - row.proximal_flops) / measured[0].flops for row in measured}
    return {cell.key: Ours(found[cell.key[1]]) for cell in cells}


def _latency(cells: Sequence[Cell]) -> dict[Key, Ours]:
    tables = {cell.key[2]: METHODS[cell.key[2]] for cell in cells} | {"FedSOL": fedsol(proximal="l2")}
    methods = {name: make_algorithm(table) for name, table in tables.items()}
    federation = outline(experiment("imagenet100", LDA, METHODS["FedAvg"], "resnet18"))
    found: dict[str, MethodCost] = {row.method: row for row in costs(federation, methods, LATENCY_REPETITIONS).methods}
    return {cell.key: Ours(found[cell.key[2]].seconds) for cell in cells}


NAMES = {"fedprox": "FedProx", "fedsol": "FedSOL"}


def _toy_cells() -> list[Cell]:
    return [
        Cell(("", NAMES[path.method], name), {"method": path.method}, paper=Number(path.fixed_point[index]))
        for path in toy().paths
        for index, name in enumerate(("u*", "v*"))
    ]


def _toy(cells: Sequence[Cell]) -> dict[Key, Ours]:
    ends = {NAMES[path.method]: path.places[-1] for path in toy().paths}
    return {cell.key: Ours(ends[cell.key[1]][("u*", "v*").index(cell.key[2])]) for cell in cells}


def _draw_toy(_cells: Sequence[Cell], _ours: Mapping[Key, Ours], folder: Path) -> list[Path]:
    from fedsol.report.toy_figure import draw_toy

    return draw_toy(toy(), folder / "toy")
