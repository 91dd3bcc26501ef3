"""The paper's table of personalised models: runs, and then every client's own model."""

import statistics
from collections.abc import Sequence
from typing import Any

from fedsol.experiment import Experiment
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


def personalized_recipe() -> Recipe:
    """Mean and deviation over clients; the paper's deviation is over clients too."""
    return make_recipe(
        "personalized",
        _make,
        ["Ours: over all clients of the seeds together; Local-only: 200 epochs, learning rate times 0.99 per epoch."],
        evaluate=personal_accuracy,
    )


def _make(_: str, row: str, column: str) -> tuple[Experiment, dict[str, str]]:
    method, _, epochs = row.partition(", e = ")
    run = experiment(DATASETS[column], LDA, ALGORITHMS[method])
    if method == "Local-only":
        run = run.override({"rounds": 1})  # nobody takes part in a round
    return run, {"method": method.lower(), "epochs": epochs or str(LOCAL_EPOCHS)}


def personal_accuracy(cell: Cell, runs: Sequence[FinishedRun]) -> Ours | None:
    """Personalises the final model of every run for every client; what is there already is not done again."""
    from fedsol.personalization.loop import personalize
    from fedsol.personalization.statistics import accuracies_after

    assert cell.experiment is not None
    method = {"knn-per": "knn-per", "local-only": "local-only"}.get(cell.facts["method"], "finetune")
    values: list[float] = []
    for run in runs:
        made = personalize(run.path, method, out=run.path / "personal" / method, resume=True)
        found = accuracies_after(made.results, int(cell.facts["epochs"])).values()
        values += [100 * accuracy for accuracy in found if accuracy is not None]
    if not values:
        return None
    spread = statistics.stdev(values) if len(values) > 1 else None
    return Ours(statistics.fmean(values), spread, tuple(differences(cell.experiment, runs)), tuple(runs))
