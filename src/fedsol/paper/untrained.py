"""Tables and a figure that take neither training nor data: settings, FLOPs, latency, the toy example."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from fedsol.algorithms import find_algorithm, make_algorithm
from fedsol.analysis.cost import costs, step_seconds
from fedsol.analysis.outline import outline
from fedsol.analysis.toy import Toy, ToySettings, fedprox_fixed_point, fedsol_fixed_point, toy
from fedsol.config.fields import settings_of
from fedsol.data.catalog import SPECS
from fedsol.paper.numbers import Key, Number, read_table
from fedsol.paper.recipe import Cell, Compute, Drawn, Figure, Folders, Ours, UntrainedTable
from fedsol.paper.settings import CIFAR, DATASETS, LDA, METHODS, experiment, fedsol

LATENCY_REPETITIONS = 3
LATENCY_WARM_UP = 1
"""Few: a step takes a thread around seven seconds."""
LATENCY_METHODS = {**METHODS, "FedSOL": fedsol(proximal="l2")}


def untrained_table(
    name: str, facts: Callable[[str, str], dict[str, str]], compute: Compute, notes: Sequence[str]
) -> UntrainedTable:
    """Return a stored table whose numbers `compute` gives; `facts` are those of a row and column."""
    table = read_table(name)
    cells = [Cell(key, facts(*key[1:]), paper=number) for key, number in table.cells.items() if number is not None]
    return UntrainedTable(name, table.title, table.label, cells, table.unit, table.digits, notes, compute=compute)


def hyperparameters() -> UntrainedTable:
    """The selected hyperparameters, and fedsol's defaults."""
    searched = "; ".join(
        f"{method} {name} {', '.join(map(str, values))}"
        for method, names in read_table("hyperparameters").more["candidates"].items()
        for name, values in names.items()
    )
    notes = [
        "Ours is the default of fedsol; nothing is run. The paper has none for FedAvg, Scaffold, FedNova and FedDyn.",
        f"The paper chose among: {searched}.",
    ]
    return untrained_table(
        "hyperparameters", lambda row, column: {"method": row.lower(), "parameter": column}, _defaults, notes
    )


def _defaults(cells: Sequence[Cell], _root: Path) -> dict[Key, Ours]:
    found = {}
    for cell in cells:
        settings = {item["name"]: item["default"] for item in settings_of(find_algorithm(cell.facts["method"]))}
        found[cell.key] = Ours(float(settings[cell.facts["parameter"]]))
    return found


def scenarios() -> UntrainedTable:
    """The federation of every dataset, and the one that fedsol has by default."""
    return untrained_table(
        "scenarios",
        lambda row, column: {"dataset": DATASETS[row], "setting": column},
        _federations,
        ["Ours is the default of fedsol; nothing is run. The paper's text says 300 rounds for SVHN."],
    )


def _federations(cells: Sequence[Cell], _root: Path) -> dict[Key, Ours]:
    names = {"clients": "clients", "rounds": "rounds", "sampling ratio": "fraction"}
    return {
        cell.key: Ours(float(getattr(SPECS[cell.facts["dataset"]], names[cell.facts["setting"]]))) for cell in cells
    }


def flops() -> UntrainedTable:
    """The cost of a step by what is perturbed."""
    notes = [
        "Counted on the paper's CNN with a batch of 50, in the paper's form: two whole passes, without the "
        "proximal loss (delta). fedsol itself makes one pass through the body for the head.",
        "Body: all that is saved is the gradient of the classifier's weights, a ten-thousandth of a step: that "
        "does not explain the paper's 1.96. Head: 1.33 takes a backward pass for two forward ones; it is a "
        "little less, as the first layer needs no gradient of its input.",
    ]
    return untrained_table("flops", lambda row, _: {"perturb": row.lower()}, _flops, notes)


def _flops(cells: Sequence[Cell], _root: Path) -> dict[Key, Ours]:
    methods = {row: make_algorithm(fedsol(perturb=row.lower())) for row in ("All", "Body", "Head")}
    counted = costs(outline(experiment(CIFAR, LDA, METHODS["FedAvg"])), methods, repetitions=1).methods
    found = {row.method: (row.two_pass_flops - row.proximal_flops) / counted[0].flops for row in counted}
    return {cell.key: Ours(found[cell.key[1]]) for cell in cells}


def latency() -> UntrainedTable:
    """The time of a step by method."""
    note = (
        "Ours: the median of three steps on one thread of this machine, in its own time, batch of 50, images "
        "of 64 x 64; the paper: an A6000 with images of a size it does not say. Compare the ratios. FedSOL "
        "with the L2 loss, as in the paper."
    )
    return untrained_table("latency", lambda _, column: {"method": column.lower()}, _latency, [note])


def _latency(cells: Sequence[Cell], _root: Path) -> dict[Key, Ours]:
    methods = {cell.key[2]: make_algorithm(LATENCY_METHODS[cell.key[2]]) for cell in cells}
    federation = outline(experiment("imagenet100", LDA, METHODS["FedAvg"], "resnet18"))
    found = step_seconds(federation, methods, LATENCY_REPETITIONS, LATENCY_WARM_UP)
    return {cell.key: Ours(found[cell.key[2]]) for cell in cells}


# --- toy example -----------------------------------------------------------------------------------------------------

TOY_METHODS = {"fedprox": "FedProx", "fedsol": "FedSOL"}
COORDINATES = ("u*", "v*")


def toy_example() -> Figure:
    """The two descents of the toy example, and where they end."""
    settings = ToySettings()
    ends = {"fedprox": fedprox_fixed_point(settings), "fedsol": fedsol_fixed_point(settings)}
    cells = [
        Cell(("", TOY_METHODS[method], name), {"method": method}, paper=Number(value))
        for method, place in ends.items()
        for name, value in zip(COORDINATES, place, strict=True)
    ]
    title = "Where FedProx and FedSOL end in the toy example (delta 0.1, 4,000 steps of 0.01 from (1, 1))"
    notes = ["The paper's number is its formula of the fixed point; mu 0.5 and rho 0.5 are our choice."]
    table = UntrainedTable("toy", title, "fig:fedsol_toy_example", cells, "", 6, notes, compute=_toy)
    return Figure(table, _draw_toy)


@cache
def _paths() -> Toy:
    """Make both descents, once for the numbers and the picture."""
    return toy()


def _toy(cells: Sequence[Cell], _root: Path) -> dict[Key, Ours]:
    ends = {TOY_METHODS[path.method]: path.places[-1] for path in _paths().paths}
    return {cell.key: Ours(ends[cell.key[1]][COORDINATES.index(cell.key[2])]) for cell in cells}


def _draw_toy(_cells: Sequence[Cell], _ours: Mapping[Key, Ours], folders: Folders) -> Drawn:
    from fedsol.plots.toy import draw_toy

    return Drawn(draw_toy(_paths(), folders.out / "toy"))
