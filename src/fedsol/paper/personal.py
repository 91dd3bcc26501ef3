"""The paper's table of personalized models: runs, and then every client's own model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fedsol.config.experiment import Experiment
from fedsol.paper.recipe import Accuracy, Cell, Ours
from fedsol.paper.settings import DATASETS, LDA, METHODS, experiment, fedsol
from fedsol.paper.tables import Made, trained_table
from fedsol.runs.run import Run

ALGORITHMS: dict[str, dict[str, Any]] = {
    "Local-only": {"name": "local-only"},
    "FedAvg": METHODS["FedAvg"],
    "PerFedAvg": {"name": "perfedavg"},
    "FedBABU": {"name": "fedbabu"},
    "kNN-Per": METHODS["FedAvg"],  # its federation is FedAvg's: the same run, personalized differently
    "FedSOL-FT": fedsol(),
}
LOCAL_EPOCHS = 200
MOST_EPOCHS = 5
"""Epochs of fine-tuning: models after fewer epochs are saved on the way."""


def _method(cell: Cell) -> str:
    """Return how `fedsol personalize` makes the models of a cell."""
    method = cell.facts["method"]
    return method if method in ("ditto", "knn-per", "local-only") else "finetune"


class PersonalAccuracy(Accuracy):
    """The mean accuracy of the clients' own models, in %, made from the final model of every run."""

    def number(self, cell: Cell, runs: Sequence[Run], console: Console | None = None) -> Ours | None:
        """Personalize every run for every client; existing models are not made again."""
        from fedsol.personalization.loop import Personalizer
        from fedsol.personalization.statistics import accuracies_after
        from fedsol.training.progress import clients_shown

        values: list[float] = []
        for run in runs:
            label = f"{cell.facts['method']}, seed {run.experiment.seed}, personal models"
            with clients_shown(console or Console(quiet=True), label) as progress:
                out = run.path / "personal" / _method(cell)
                made = Personalizer(progress=progress).run(run.path, _method(cell), out=out, resume=True)
            found = accuracies_after(made.results, int(cell.facts["epochs"])).values()
            values += [100 * accuracy for accuracy in found if accuracy is not None]
        return Ours.of_runs(cell, runs, values)

    def remaining_work(self, cell: Cell, run: Experiment, path: Path) -> Experiment | None:
        """Return a round of FedAvg in which every client trains for that many epochs; None if all models exist."""
        from fedsol.personalization.results import PersonalDirectory

        made = PersonalDirectory(path / "personal" / _method(cell))
        if made.exists and len(made.read_results()) == run.data.partition.clients:
            return None
        epochs = LOCAL_EPOCHS if _method(cell) == "local-only" else MOST_EPOCHS
        return run.override({"algorithm.name": "fedavg", "rounds": 1, "server.fraction": 1.0, "client.epochs": epochs})


@trained_table("personalized", PersonalAccuracy())
def personalized(_: str, row: str, column: str) -> Made:
    """Return a cell's run; its mean and deviation are over clients, as in the paper."""
    method, _, epochs = row.partition(", e = ")
    # No client takes part in a round of Local-only.
    changes = {"rounds": 1} if method == "Local-only" else {}
    run = experiment(DATASETS[column], LDA, ALGORITHMS[method], changes=changes)
    return run, {"method": method.lower(), "epochs": epochs or str(LOCAL_EPOCHS)}
