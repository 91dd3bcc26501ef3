"""The paper's tables of training runs: the experiment behind every published number."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.paper.numbers import read_table
from fedsol.paper.recipe import Accuracy, Cell, TrainedTable, run_cell
from fedsol.paper.settings import CIFAR, DATASETS, LDA, METHODS, MODELS, experiment, fedsol

Made = tuple[Experiment, Mapping[str, str]]
"""The experiment of a cell, and the facts that are not in it."""


def trained_table(
    name: str,
    make: Callable[[str, str, str], Made],
    extras: Sequence[Cell] = (),
    evaluation: Accuracy | None = None,
) -> TrainedTable:
    """Return a stored table; `make` gives the experiment of a block, row and column, `extras` are our own cells."""
    table = read_table(name)
    cells = [run_cell(key, *make(*key), number) for key, number in table.numbers.items()]
    return TrainedTable(table.heading, [*cells, *extras], evaluation or Accuracy())


def _method(label: str) -> dict[str, str]:
    return {"method": label.lower()}


def _labeled(row: str, column: str, model: str = "cnn") -> Made:
    """Return the experiment of a method's row and a column such as `CIFAR-10` or `CIFAR-10, s = 2`."""
    dataset, _, level = column.partition(", ")
    return experiment(DATASETS[dataset], level or LDA, METHODS[row], model), _method(row)


def gradient_projection() -> TrainedTable:
    """Proximal losses, added and projected."""

    def make(_: str, row: str, column: str) -> Made:
        usage = {"base": "auxiliary", "projection": "projected"}[column]
        loss, algorithm = {
            "None (FedAvg)": ("none", METHODS["FedAvg"]),
            "L2 Distance": ("l2", {**METHODS["FedProx"], "usage": usage}),
            "KL-Divergence": ("kl", fedsol(usage=usage)),
        }[row]
        return experiment(CIFAR, LDA, algorithm), {"proximal": loss, "usage": column}

    return trained_table("gradient-projection", make)


RHO_OF_MAIN = {("LDA", "CIFAR-10, alpha = 0.1"): 1.5}
"""Where the main table's FedSOL is not rho 2.0: 64.13 is the number of head and rho 1.5 in the table `partial`."""

EXTRA_ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "FedSOL, rho 2.0": ("fedsol-rho2", fedsol()),
    "FedSOL, rho 1.5": ("fedsol-rho1.5", fedsol(rho=1.5)),
    "FedSOL, per column": ("fedsol-column", fedsol(strength="adaptive-column")),
    "FedDyn": ("feddyn", METHODS["FedDyn"]),
    "MOON": ("moon", METHODS["MOON"]),
}


def main() -> TrainedTable:
    """All methods on all datasets; FedSOL by other readings, FedDyn and MOON are extra rows."""

    def make(block: str, row: str, column: str) -> Made:
        run, facts = _labeled(row, column)
        return run.override({"algorithm.rho": _rho(block, column)}) if row == "FedSOL" else run, facts

    return trained_table("main", make, _extra_cells())


def _rho(block: str, column: str) -> float:
    return RHO_OF_MAIN.get((block, column), 2.0)


def _extra_cells() -> list[Cell]:
    cells = []
    fedsol_numbers = {key: number for key, number in read_table("main").numbers.items() if key[1] == "FedSOL"}
    for (block, _, column), number in fedsol_numbers.items():
        dataset, _, level = column.partition(", ")
        own_rho = _rho(block, column)
        papers = {"FedSOL, per column": number}
        if own_rho != 2.0:
            papers["FedSOL, rho 2.0"] = read_table("partial").numbers["", "Head", "rho = 2.0"]
        for row, (method, algorithm) in EXTRA_ROWS.items():
            if row != f"FedSOL, rho {own_rho}":
                run = experiment(DATASETS[dataset], level, algorithm)
                cells.append(run_cell((block, row, column), run, {"method": method}, papers.get(row), extra=True))
    return cells


def architectures() -> TrainedTable:
    """Methods by model."""
    return trained_table("architectures", lambda block, row, column: _labeled(row, column, MODELS[block]))


def combinations() -> TrainedTable:
    """FedSOL's perturbation with the proximal gradients of other methods."""

    def make(_: str, row: str, column: str) -> Made:
        dataset, _, usage = column.partition(", ")
        algorithm = dict(METHODS[row])
        if usage == "combined":
            algorithm |= {"usage": "perturbed", "perturb": "all", "rho": 2.0, "strength": "adaptive"}
            if row == "FedNova":
                algorithm["control"] = True  # FedNova's proximal gradient is its control variate
        return experiment(DATASETS[dataset], LDA, algorithm), {**_method(row), "usage": usage}

    return trained_table("combinations", make)


def partial() -> TrainedTable:
    """What is perturbed, by rho."""

    def make(_: str, row: str, column: str) -> Made:
        rho = float(column.removeprefix("rho = "))
        algorithm = fedsol(rho=rho, perturb=row.lower()) if rho else METHODS["FedAvg"]
        return experiment(CIFAR, LDA, algorithm), {"perturb": row.lower(), "rho": f"{rho:g}"}

    return trained_table("partial", make)


def larger_datasets() -> TrainedTable:
    """CIFAR-100 and ImageNet-100."""
    return trained_table("larger-datasets", lambda _, row, column: _labeled(row, column, "resnet18"))


def larger_models() -> TrainedTable:
    """Full and head perturbation of larger models."""

    def make(_: str, row: str, column: str) -> Made:
        perturb = {"FedAvg": {}, "FedSOL (full)": {"perturb": "all"}, "FedSOL (head)": {"perturb": "head"}}[column]
        algorithm = fedsol(**perturb) if perturb else METHODS["FedAvg"]
        return experiment(CIFAR, LDA, algorithm, MODELS[row]), {**_method(column.partition(" ")[0]), **perturb}

    return trained_table("larger-models", make)


def objectives() -> TrainedTable:
    """Other ways to combine the two losses."""

    def make(_: str, row: str, __: str) -> Made:
        known = {"A0": METHODS["FedAvg"], "A1": fedsol(rho=1.5), "A5": fedsol(usage="auxiliary")}
        ablation = {**fedsol(rho=1.5), "name": "fedsol-ablation", "strategy": row}
        del ablation["usage"]
        return experiment(CIFAR, LDA, known.get(row, ablation)), {"strategy": row.lower()}

    return trained_table("objectives", make)
