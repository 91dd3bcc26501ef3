"""Tables and a figure that require neither training nor data: settings, FLOPs, latency, the toy example."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from fedsol.algorithms import find_algorithm, make_algorithm
from fedsol.analysis.base import Output
from fedsol.analysis.cost import costs, step_seconds, without_data
from fedsol.analysis.toy import ToyAnalysis, ToySettings, fedprox_fixed_point, fedsol_fixed_point, toy
from fedsol.config.fields import settings_of
from fedsol.data.catalog import SPECS
from fedsol.paper.numbers import Heading, Key, Number, figure_heading, read_table
from fedsol.paper.recipe import Cell, Figure, Folders, Ours, Table, UntrainedTable
from fedsol.paper.settings import CIFAR, DATASETS, LDA, METHODS, experiment, fedsol

LATENCY_REPETITIONS = 3
LATENCY_WARM_UP = 1
"""Few: a step takes about seven seconds on one thread."""
LATENCY_METHODS = {**METHODS, "FedSOL": fedsol(proximal="l2")}

Values = Callable[[Sequence[Cell]], Sequence[float]]


def _untrained_table(name: str, facts: Callable[[str, str], dict[str, str]], values: Values) -> UntrainedTable:
    """Return a stored table whose numbers `values` gives; `facts` are those of a row and column."""
    table = read_table(name)
    cells = [Cell(key, facts(*key[1:]), paper=number) for key, number in table.numbers.items()]
    return _computed(table.heading, cells, values)


def _computed(heading: Heading, cells: Sequence[Cell], values: Values) -> UntrainedTable:
    return UntrainedTable(
        heading,
        cells,
        lambda some, _: {cell.key: Ours(float(value)) for cell, value in zip(some, values(some), strict=True)},
    )


def hyperparameters() -> UntrainedTable:
    """Return the selected hyperparameters and fedsol's defaults."""

    def default(facts: Mapping[str, str]) -> float:
        settings = {item["name"]: item["default"] for item in settings_of(find_algorithm(facts["method"]))}
        return float(settings[facts["parameter"]])

    table = _untrained_table(
        "hyperparameters",
        lambda row, column: {"method": row.lower(), "parameter": column},
        lambda cells: [default(cell.facts) for cell in cells],
    )
    searched = "; ".join(
        f"{method} {name} {', '.join(map(str, values))}"
        for method, names in read_table("hyperparameters").candidates.items()
        for name, values in names.items()
    )
    notes = [*table.heading.notes, f"The paper chose among: {searched}."]
    return replace(table, heading=replace(table.heading, notes=notes))


def scenarios() -> UntrainedTable:
    """Return the paper's federation for every dataset and fedsol's default."""
    names = {"clients": "clients", "rounds": "rounds", "sampling ratio": "fraction"}
    return _untrained_table(
        "scenarios",
        lambda row, column: {"dataset": DATASETS[row], "setting": column},
        lambda cells: [getattr(SPECS[cell.facts["dataset"]], names[cell.facts["setting"]]) for cell in cells],
    )


def flops() -> UntrainedTable:
    """Return the cost of a step by what is perturbed."""

    def values(cells: Sequence[Cell]) -> list[float]:
        methods = {row: make_algorithm(fedsol(perturb=row.lower())) for row in ("All", "Body", "Head")}
        counted = costs(without_data(experiment(CIFAR, LDA, METHODS["FedAvg"])), methods, repetitions=1).methods
        found = {row.method: (row.two_pass_flops - row.proximal_flops) / counted[0].flops for row in counted}
        return [found[cell.key[1]] for cell in cells]

    return _untrained_table("flops", lambda row, _: {"perturb": row.lower()}, values)


def latency() -> UntrainedTable:
    """Return the time of a step by method."""

    def values(cells: Sequence[Cell]) -> list[float]:
        methods = {cell.key[2]: make_algorithm(LATENCY_METHODS[cell.key[2]]) for cell in cells}
        federation = without_data(experiment("imagenet100", LDA, METHODS["FedAvg"], "resnet18"))
        found = step_seconds(federation, methods, LATENCY_REPETITIONS, LATENCY_WARM_UP)
        return [found[cell.key[2]] for cell in cells]

    return _untrained_table("latency", lambda _, column: {"method": column.lower()}, values)


def toy_example() -> Figure:
    """Return the two descents of the toy example and where they end."""
    settings, coordinates = ToySettings(), ("u*", "v*")
    formulas = {"FedProx": fedprox_fixed_point(settings), "FedSOL": fedsol_fixed_point(settings)}
    cells = [
        Cell(("", method, name), {"method": method.lower()}, paper=Number(value))
        for method, place in formulas.items()
        for name, value in zip(coordinates, place, strict=True)
    ]
    descents = cache(toy)  # once for the numbers and the picture

    def values(cells: Sequence[Cell]) -> list[float]:
        ends = {path.method: path.places[-1] for path in descents().paths}
        return [ends[cell.facts["method"]][coordinates.index(cell.key[2])] for cell in cells]

    def draw(_table: Table, _ours: Mapping[Key, Ours], folders: Folders) -> Output:
        return Output(ToyAnalysis().write_figure(descents(), folders.out, ""), [])

    return Figure(_computed(figure_heading("toy"), cells, values), draw)
