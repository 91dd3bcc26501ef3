"""The paper's tables of training runs: the experiment behind every published number."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.paper.numbers import read_table
from fedsol.paper.recipe import Accuracy, Cell, TrainedTable, run_cell
from fedsol.paper.settings import CIFAR, DATASETS, LDA, METHODS, MODELS, experiment, fedsol

Made = tuple[Experiment, Mapping[str, str]]
"""The experiment of a cell, and the facts that are not in it."""
Make = Callable[[str, str, str], Made]


def trained_table(name: str, evaluation: Accuracy | None = None) -> Callable[[Make], Callable[[], TrainedTable]]:
    """Turn a function from block, row and column to an experiment into a stored table."""

    def decorate(make: Make) -> Callable[[], TrainedTable]:
        def table() -> TrainedTable:
            stored = read_table(name)
            cells = [run_cell(key, *make(*key), number) for key, number in stored.numbers.items()]
            return TrainedTable(stored.heading, cells, evaluation or Accuracy())

        return table

    return decorate


def _method(label: str) -> dict[str, str]:
    return {"method": label.lower()}


def _labeled(row: str, column: str, model: str = "cnn") -> Made:
    """Return the experiment of a method's row and a column such as `CIFAR-10` or `CIFAR-10, s = 2`."""
    dataset, _, level = column.partition(", ")
    return experiment(DATASETS[dataset], level or LDA, METHODS[row], model), _method(row)


@trained_table("gradient-projection")
def gradient_projection(_: str, row: str, column: str) -> Made:
    """Return a cell of the proximal losses, added and projected."""
    usage = {"base": "auxiliary", "projection": "projected"}[column]
    loss, algorithm = {
        "None (FedAvg)": ("none", METHODS["FedAvg"]),
        "L2 Distance": ("l2", {**METHODS["FedProx"], "usage": usage}),
        "KL-Divergence": ("kl", fedsol(usage=usage)),
    }[row]
    return experiment(CIFAR, LDA, algorithm), {"proximal": loss, "usage": column}


RHO_OF_MAIN = {("LDA", "CIFAR-10, alpha = 0.1"): 1.5}
"""Where the main table's FedSOL is not rho 2.0: 64.13 is the number of head and rho 1.5 in the table `partial`."""

EXTRA_ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "FedSOL, rho 2.0": ("fedsol-rho2", fedsol()),
    "FedSOL, rho 1.5": ("fedsol-rho1.5", fedsol(rho=1.5)),
    "FedSOL, per column": ("fedsol-column", fedsol(strength="adaptive-column")),
    "FedSOL, as released": ("fedsol-released", fedsol(strength="adaptive-column", perturb="all", rho=1.0)),
    "FedDyn": ("feddyn", METHODS["FedDyn"]),
    "MOON": ("moon", METHODS["MOON"]),
}


LONGER = {"SVHN": 300}
"""Rounds in the paper's text where its table of settings has fewer: extra rows."""


@trained_table("main")
def _paper_main(block: str, row: str, column: str) -> Made:
    run, facts = _labeled(row, column)
    return run.override({"algorithm.rho": _rho(block, column)}) if row == "FedSOL" else run, facts


def _rho(block: str, column: str) -> float:
    return RHO_OF_MAIN.get((block, column), 2.0)


def main() -> TrainedTable:
    """Return all methods on all datasets; other readings of FedSOL, FedDyn, MOON and longer runs are extra rows."""
    table = _paper_main()
    extras = []
    for cell in (cell for cell in table.cells if cell.key[1] == "FedSOL"):
        block, _, column = cell.key
        dataset, _, level = column.partition(", ")
        own_rho = _rho(block, column)
        papers = {"FedSOL, per column": cell.paper}
        if own_rho != 2.0:
            papers["FedSOL, rho 2.0"] = read_table("partial").numbers["", "Head", "rho = 2.0"]
        for row, (method, algorithm) in EXTRA_ROWS.items():
            if row != f"FedSOL, rho {own_rho}":
                run = experiment(DATASETS[dataset], level, algorithm)
                extras.append(run_cell((block, row, column), run, {"method": method}, papers.get(row), extra=True))
    return replace(table, cells=[*table.cells, *extras, *_longer(table.cells)], passing="FedSOL")


def _longer(cells: Sequence[Cell]) -> Iterator[Cell]:
    """Yield FedAvg and FedSOL with the rounds of the paper's text where its table has fewer."""
    for cell in cells:
        (block, row, column), run = cell.key, cell.experiment
        rounds = LONGER.get(column.partition(", ")[0])
        if rounds and run and row in ("FedAvg", "FedSOL"):
            facts = {"method": f"{row.lower()}-{rounds}"}
            changed = run.override({"rounds": rounds})
            yield run_cell((block, f"{row}, {rounds} rounds", column), changed, facts, cell.paper, extra=True)


@trained_table("architectures")
def architectures(block: str, row: str, column: str) -> Made:
    """Return a cell of the methods by model."""
    return _labeled(row, column, MODELS[block])


@trained_table("combinations")
def combinations(_: str, row: str, column: str) -> Made:
    """Return a cell of FedSOL's perturbation with the proximal gradients of other methods."""
    dataset, _, usage = column.partition(", ")
    algorithm = dict(METHODS[row])
    if usage == "combined":
        algorithm |= {"usage": "perturbed", "perturb": "all", "rho": 2.0, "strength": "adaptive"}
        if row == "FedNova":
            algorithm["control"] = True  # FedNova's proximal gradient is its control variate
    return experiment(DATASETS[dataset], LDA, algorithm), {**_method(row), "usage": usage}


@trained_table("partial")
def partial(_: str, row: str, column: str) -> Made:
    """Return a cell of what is perturbed, by rho."""
    rho = float(column.removeprefix("rho = "))
    algorithm = fedsol(rho=rho, perturb=row.lower()) if rho else METHODS["FedAvg"]
    return experiment(CIFAR, LDA, algorithm), {"perturb": row.lower(), "rho": f"{rho:g}"}


@trained_table("larger-datasets")
def _larger_datasets(_: str, row: str, column: str) -> Made:
    return _labeled(row, column, "resnet18")


def larger_datasets() -> TrainedTable:
    """Return CIFAR-100 and ImageNet-100, and when FedSOL passes FedAvg."""
    return replace(_larger_datasets(), passing="FedSOL")


@trained_table("larger-models")
def larger_models(_: str, row: str, column: str) -> Made:
    """Return a cell of full and head perturbation of larger models."""
    perturb = {"FedAvg": {}, "FedSOL (full)": {"perturb": "all"}, "FedSOL (head)": {"perturb": "head"}}[column]
    algorithm = fedsol(**perturb) if perturb else METHODS["FedAvg"]
    return experiment(CIFAR, LDA, algorithm, MODELS[row]), {**_method(column.partition(" ")[0]), **perturb}


@trained_table("objectives")
def objectives(_: str, row: str, __: str) -> Made:
    """Return a cell of other ways to combine the two losses."""
    known = {"A0": METHODS["FedAvg"], "A1": fedsol(rho=1.5), "A5": fedsol(usage="auxiliary")}
    ablation = {**fedsol(rho=1.5), "name": "fedsol-ablation", "strategy": row}
    del ablation["usage"]
    return experiment(CIFAR, LDA, known.get(row, ablation)), {"strategy": row.lower()}
