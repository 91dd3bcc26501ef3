"""Tables and a figure that take neither training nor data: settings, FLOPs, latency, the toy example."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from fedsol.algorithms import find_algorithm, make_algorithm
from fedsol.analysis.cost import costs, step_seconds, without_data
from fedsol.analysis.toy import Toy, ToyAnalysis, ToySettings, fedprox_fixed_point, fedsol_fixed_point, toy
from fedsol.config.fields import settings_of
from fedsol.data.catalog import SPECS
from fedsol.paper.numbers import Key, Number, figure_heading, read_table
from fedsol.paper.recipe import Cell, Drawn, Figure, Folders, Ours, UntrainedTable
from fedsol.paper.settings import CIFAR, DATASETS, LDA, METHODS, experiment, fedsol

LATENCY_REPETITIONS = 3
LATENCY_WARM_UP = 1
"""Few: a step takes a thread around seven seconds."""
LATENCY_METHODS = {**METHODS, "FedSOL": fedsol(proximal="l2")}


def _untrained_table(
    name: str, facts: Callable[[str, str], dict[str, str]], values: Callable[[Sequence[Cell]], Sequence[float]]
) -> UntrainedTable:
    """Return a stored table whose numbers `values` gives; `facts` are those of a row and column."""
    table = read_table(name)
    cells = [Cell(key, facts(*key[1:]), paper=number) for key, number in table.numbers.items()]
    return UntrainedTable(table.heading, cells, lambda some, _root: _filled(some, values(some)))


def _filled(cells: Sequence[Cell], values: Sequence[float]) -> dict[Key, Ours]:
    return {cell.key: Ours(float(value)) for cell, value in zip(cells, values, strict=True)}


def hyperparameters() -> UntrainedTable:
    """The selected hyperparameters, and fedsol's defaults."""

    def default(method: str, parameter: str) -> float:
        settings = {item["name"]: item["default"] for item in settings_of(find_algorithm(method))}
        return float(settings[parameter])

    table = _untrained_table(
        "hyperparameters",
        lambda row, column: {"method": row.lower(), "parameter": column},
        lambda cells: [default(cell.facts["method"], cell.facts["parameter"]) for cell in cells],
    )
    searched = "; ".join(
        f"{method} {name} {', '.join(map(str, values))}"
        for method, names in read_table("hyperparameters").candidates.items()
        for name, values in names.items()
    )
    notes = [*table.heading.notes, f"The paper chose among: {searched}."]
    return replace(table, heading=replace(table.heading, notes=notes))


def scenarios() -> UntrainedTable:
    """The federation of every dataset, and the one that fedsol has by default."""
    names = {"clients": "clients", "rounds": "rounds", "sampling ratio": "fraction"}
    return _untrained_table(
        "scenarios",
        lambda row, column: {"dataset": DATASETS[row], "setting": column},
        lambda cells: [getattr(SPECS[cell.facts["dataset"]], names[cell.facts["setting"]]) for cell in cells],
    )


def flops() -> UntrainedTable:
    """The cost of a step by what is perturbed."""
    return _untrained_table("flops", lambda row, _: {"perturb": row.lower()}, _flops)


def _flops(cells: Sequence[Cell]) -> list[float]:
    methods = {row: make_algorithm(fedsol(perturb=row.lower())) for row in ("All", "Body", "Head")}
    counted = costs(without_data(experiment(CIFAR, LDA, METHODS["FedAvg"])), methods, repetitions=1).methods
    found = {row.method: (row.two_pass_flops - row.proximal_flops) / counted[0].flops for row in counted}
    return [found[cell.key[1]] for cell in cells]


def latency() -> UntrainedTable:
    """The time of a step by method."""
    return _untrained_table("latency", lambda _, column: {"method": column.lower()}, _latency)


def _latency(cells: Sequence[Cell]) -> list[float]:
    methods = {cell.key[2]: make_algorithm(LATENCY_METHODS[cell.key[2]]) for cell in cells}
    federation = without_data(experiment("imagenet100", LDA, METHODS["FedAvg"], "resnet18"))
    found = step_seconds(federation, methods, LATENCY_REPETITIONS, LATENCY_WARM_UP)
    return [found[cell.key[2]] for cell in cells]


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
    return Figure(
        UntrainedTable(figure_heading("toy"), cells, lambda some, _root: _filled(some, _toy(some))), _draw_toy
    )


@cache
def _paths() -> Toy:
    """Compute both descents, once for the numbers and the picture."""
    return toy()


def _toy(cells: Sequence[Cell]) -> list[float]:
    ends = {TOY_METHODS[path.method]: path.places[-1] for path in _paths().paths}
    return [ends[cell.key[1]][COORDINATES.index(cell.key[2])] for cell in cells]


def _draw_toy(_cells: Sequence[Cell], _ours: Mapping[Key, Ours], folders: Folders) -> Drawn:
    return Drawn(ToyAnalysis().write_figure(_paths(), folders.out, ""))
