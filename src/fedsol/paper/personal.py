"""The paper's table of personalised models: runs, and then every client's own model."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fedsol.config.experiment import Experiment
from fedsol.paper.recipe import Cell, FinishedRun, Ours, Recipe
from fedsol.paper.results import differences
from fedsol.paper.setting import DATASETS, METHODS, experiment, fedsol
from fedsol.paper.tables import LDA, make_recipe

ALGORITHMS: dict[str, dict[str, Any]] = {
    "Local-only": {"name": "local-only"},
    "FedAvg": METHODS["FedAvg"],
    "PerFedAvg": {"name": "perfedavg"},
    "FedBABU": {"name": "fedbabu"},
    "kNN-Per": METHODS["FedAvg"],  # its federation is FedAvg's: the same run, personalised in another way
    "FedSOL-FT": fedsol(),
}
LOCAL_EPOCHS = 200
MOST_EPOCHS = 5
"""Of fine-tuning: models after fewer are kept on the way."""


def personalized_recipe() -> Recipe:
    """Mean and deviation over clients; the paper's deviation is over clients too."""
    return make_recipe(
        "personalized",
        _make,
        ["Ours: over all clients of the seeds together; Local-only: 200 epochs, learning rate times 0.99 per epoch."],
        evaluate=personal_accuracy,
        afterwards=as_much_work,
    )


def _make(_: str, row: str, column: str) -> tuple[Experiment, dict[str, str]]:
    method, _, epochs = row.partition(", e = ")
    run = experiment(DATASETS[column], LDA, ALGORITHMS[method])
    if method == "Local-only":
        run = run.override({"rounds": 1})  # nobody takes part in a round
    return run, {"method": method.lower(), "epochs": epochs or str(LOCAL_EPOCHS)}


def _method(cell: Cell) -> str:
    """How `fedsol personalize` makes the models of a cell."""
    return {"knn-per": "knn-per", "local-only": "local-only"}.get(cell.facts["method"], "finetune")


def _place(cell: Cell, run: Path) -> Path:
    return run / "personal" / _method(cell)


def as_much_work(cell: Cell, run: Experiment, place: Path | None) -> Experiment | None:
    """A round of FedAvg in which every client trains for as many epochs; None if its personal models are all there."""
    from fedsol.personalization.results import PersonalDirectory

    made = None if place is None else PersonalDirectory(_place(cell, place))
    if made is not None and made.exists and len(made.read_results()) == run.data.partition.clients:
        return None
    epochs = LOCAL_EPOCHS if _method(cell) == "local-only" else MOST_EPOCHS
    changes = {"algorithm.name": "fedavg", "rounds": 1, "server.fraction": 1.0, "client.epochs": epochs}
    return run.override(changes)


def personal_accuracy(cell: Cell, runs: Sequence[FinishedRun], console: Console) -> Ours | None:
    """Personalises the final model of every run for every client; what is there already is not done again."""
    from fedsol.cli.personalize import clients_shown
    from fedsol.personalization.loop import personalize
    from fedsol.personalization.statistics import accuracies_after

    assert cell.experiment is not None
    values: list[float] = []
    for run in runs:
        label = f"{cell.facts['method']}, seed {run.experiment.seed}, personal models"
        with clients_shown(console, label) as watch:
            made = personalize(run.path, _method(cell), out=_place(cell, run.path), resume=True, watch=watch)
        found = accuracies_after(made.results, int(cell.facts["epochs"])).values()
        values += [100 * accuracy for accuracy in found if accuracy is not None]
    if not values:
        return None
    spread = statistics.stdev(values) if len(values) > 1 else None
    return Ours(statistics.fmean(values), spread, tuple(differences(cell.experiment, runs)), tuple(runs))
