"""A small table in the place of the paper's, and the command line that runs it."""

from pathlib import Path

from typer.testing import CliRunner

from fedsol.cli.app import app
from fedsol.config.experiment import Experiment
from fedsol.paper import registry
from fedsol.paper.numbers import Number
from fedsol.paper.recipe import Cell, table_of


def small(algorithm, **changes):
    """Quick runs on the embedded digits, in the place of the paper's."""
    return Experiment(
        rounds=3,
        data={"name": "digits", "download": False, "partition": {"clients": 6}},
        model={"name": "small"},
        algorithm={"name": algorithm},
        client={"epochs": 1},
        server={"fraction": 0.5},
        engine={"kind": "local"},
        **changes,
    )


def small_cells():
    def cell(row, column, algorithm, paper, extra=False):
        return Cell(("", row, column), {"dataset": "digits", "method": algorithm}, small(algorithm), paper, extra)

    return [
        cell("FedAvg", "first", "fedavg", Number(50.0, 1.0)),
        cell("FedAvg", "again", "fedavg", Number(50.0)),
        cell("FedProx", "first", "fedprox", Number(10.0, failed=True)),
        cell("FedSAM", "first", "fedsam", None, extra=True),
    ]


def know(monkeypatch, recipe):
    """Add a recipe to the registry."""
    monkeypatch.setitem(registry.RECIPES, table_of(recipe).name, lambda: recipe)


def fedsol(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "160"})


def runs_in(folder="runs/paper"):
    return sorted(path.parent.relative_to(folder).as_posix() for path in Path(folder).rglob("experiment.toml"))
