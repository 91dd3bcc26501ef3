"""Accuracies by client for a report: of local models after a round, and of personal models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsol.errors import InputError
from fedsol.report.columns import number


@dataclass(frozen=True)
class ClientAccuracies:
    """One model for each client, all tested in the same way."""

    models: str
    tested_on: str
    values: list[float | int | None]
    """Between 0 and 1."""


def after_local_training(rows: Sequence[Mapping[str, Any]]) -> list[ClientAccuracies]:
    """Of the last round in which local models were tested on the global test set (`--analyze preservation`)."""
    if not rows or not isinstance(rows[-1].get("after"), list):
        return []
    last = rows[-1]
    return [ClientAccuracies("local models of the last round", "global test set", _numbers(last["after"]))]


def personal_models(folder: Path) -> list[ClientAccuracies]:
    """Of all personalisations in a run directory, before and after (`fedsol personalize`)."""
    from fedsol.personalization.results import PersonalDirectory
    from fedsol.personalization.statistics import accuracies_after, epochs_of

    found: list[ClientAccuracies] = []
    for path in sorted(folder.glob("*/personal.json")):
        place = PersonalDirectory(path.parent)
        try:
            settings = place.read_description()["settings"]
            method, test = str(settings["method"]), f"own {settings['test']} test set"
        except (KeyError, TypeError) as error:
            raise InputError(f"{path}: is not a description of personal models ({error})") from error
        results = place.read_results()
        if not results:
            continue
        began = "initial model" if method == "local-only" else "global model"
        before = ClientAccuracies(began, test, _numbers([result.before for result in results]))
        found += [before] if before not in found else []
        for epochs in epochs_of(results):
            models = f"{method}, {epochs} {'epoch' if epochs == 1 else 'epochs'}"
            found.append(ClientAccuracies(models, test, _numbers(accuracies_after(results, epochs).values())))
    return found


def _numbers(values: Any) -> list[float | int | None]:
    return [None if value is None else number(value) for value in values]
