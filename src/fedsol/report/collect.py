"""What a report shows of a run besides its metrics, read without importing the code that its experiment names."""

import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsol.core.files import read_json_lines, read_json_object
from fedsol.errors import InputError
from fedsol.personalization.results import PersonalDirectory
from fedsol.personalization.statistics import accuracies_after, epochs_of
from fedsol.report.columns import NOT_ANALYSED, number, to_columns
from fedsol.runs.run import Run


def short_names(runs: Sequence[Run]) -> list[str]:
    """Return the directories of runs without the part that all share; a single run keeps its directory's name."""
    resolved = [run.path.resolve() for run in runs]
    common = Path(os.path.commonpath([path.parent for path in resolved])) if resolved else Path()
    return [str(path.relative_to(common)) for path in resolved]


def partition_of(run: Run) -> dict[str, Any] | None:
    """Return sizes and class counts by client; older manifests have sizes alone.

    None if nothing is known: the server of a deployment does not learn how much data its nodes have.
    """
    path = run.path / "partition.json"
    if not path.is_file():
        return None
    content = read_json_object(path)
    try:
        sizes = [len(indices) for indices in content["clients"]]
        if sizes and not any(sizes):
            return None
        counts = content.get("class_counts")
        if counts is not None and [sum(map(operator.index, row)) for row in counts] != sizes:
            raise TypeError("class_counts does not add up to the clients")
        return {
            "sha256": str(content["sha256"]),
            "kind": str(content["settings"].get("kind", "")),
            "sizes": sizes,
            "counts": counts,
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a partition manifest ({error})") from error


def analyses_of(run: Run) -> dict[str, dict[str, Any]]:
    """Return the columns of every analysis that was recorded during the run, by its name."""
    return {stem: to_columns(rows, NOT_ANALYSED) for stem, rows in _analysis_rows(run).items()}


def clients_of(run: Run) -> "list[ClientAccuracies]":
    """Return accuracies by client: of local models after a round, and of personal models."""
    local = _after_local_training(_analysis_rows(run).get("preservation", []))
    return [*local, *_personal_models(run.path / "personal")]


def _analysis_rows(run: Run) -> dict[str, list[dict[str, Any]]]:
    return {file.stem: read_json_lines(file) for file in sorted((run.path / "analysis").glob("*.jsonl"))}


@dataclass(frozen=True)
class ClientAccuracies:
    """One model for each client, all tested in the same way."""

    models: str
    tested_on: str
    values: list[float | int | None]
    """Between 0 and 1."""


def _after_local_training(rows: Sequence[Mapping[str, Any]]) -> list[ClientAccuracies]:
    """Return those of the last round with local models tested on the global test set (`--analyze preservation`)."""
    if not rows or not isinstance(rows[-1].get("after"), list):
        return []
    last = rows[-1]
    return [ClientAccuracies("local models of the last round", "global test set", _numbers(last["after"]))]


def _personal_models(folder: Path) -> list[ClientAccuracies]:
    """Return those of all personalizations of a run, before and after (`fedsol personalize`)."""
    found: list[ClientAccuracies] = []
    for path in sorted(folder.glob("*/personal.json")):
        place = PersonalDirectory(path.parent)
        try:
            settings = place.read_description()["settings"]
            method, test = str(settings["method"]), f"own {settings['test']} test set"
        except (KeyError, TypeError) as error:
            raise InputError(f"{path}: not a description of personal models ({error})") from error
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
