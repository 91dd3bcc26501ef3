"""What a report shows about a run besides its metrics, without importing user code that the experiment names."""

import base64
import operator
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedsol.core.files import read_json_lines, read_json_object
from fedsol.data.heterogeneity import heterogeneity
from fedsol.errors import InputError
from fedsol.personalization.results import PersonalDirectory
from fedsol.personalization.statistics import accuracies_after, epochs_of
from fedsol.reports.columns import NOT_IN_ANALYSES, number, to_columns
from fedsol.runs.run import Run

MOST_BYTES = 6_000_000
"""Of all figures on a page."""


def short_names(runs: Sequence[Run]) -> list[str]:
    """Return the directories of runs without the part that all share; a single run keeps its directory's name."""
    resolved = [run.path.resolve() for run in runs]
    common = Path(os.path.commonpath([path.parent for path in resolved])) if resolved else Path()
    return [str(path.relative_to(common)) for path in resolved]


def partition_of(run: Run) -> dict[str, Any] | None:
    """Return sizes and class counts by client (older manifests have sizes only).

    None if both are unknown: the server of a deployment does not learn how much data its nodes have.
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
            raise TypeError("class_counts does not match the sizes of the clients")
        kind = str(content["settings"].get("kind", ""))
        found = {"sha256": str(content["sha256"]), "kind": kind, "sizes": sizes, "counts": counts}
        return found if counts is None else {**found, "heterogeneity": asdict(heterogeneity(counts))}
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise InputError(f"{path}: not a partition manifest ({error})") from error


def analyses_of(run: Run) -> dict[str, dict[str, Any]]:
    """Return the columns of every analysis that was recorded during the run, by name."""
    files = sorted((run.path / "analysis").glob("*.jsonl"))
    return {file.stem: to_columns(read_json_lines(file), NOT_IN_ANALYSES) for file in files}


@dataclass(frozen=True)
class FigureFile:
    """A figure that `fedsol analyze` drew."""

    name: str
    image: str
    """The picture, as a `data:` address."""


def figures_of(places: Sequence[Path]) -> list[FigureFile]:
    """Return the figures of analyses in these directories and in their `analysis/`: pictures beside their data."""
    found, room = [], MOST_BYTES
    folders = (folder for place in places for folder in (place.resolve(), place.resolve() / "analysis"))
    for folder in dict.fromkeys(folders):
        for path in sorted(folder.glob("*.png")):
            size = path.stat().st_size
            if path.with_suffix(".json").is_file() and size <= room:
                room -= size
                image = base64.b64encode(path.read_bytes()).decode()
                name = (
                    path.stem
                    if len(places) == 1
                    else f"{path.stem}, {folder.name if folder.name != 'analysis' else folder.parent.name}"
                )
                found.append(FigureFile(name, f"data:image/png;base64,{image}"))
    return found


@dataclass(frozen=True)
class ClientAccuracies:
    """One model per client, all tested in the same way."""

    models: str
    tested_on: str
    values: list[float | int | None]
    """Between 0 and 1."""
    clients: list[int]


def clients_of(run: Run) -> list[ClientAccuracies]:
    """Return accuracies by client: of local models (`--analyze preservation`) and of personal models."""
    found: list[ClientAccuracies] = []
    rows = read_json_lines(run.path / "analysis" / "preservation.jsonl")
    if rows and isinstance(rows[-1].get("after"), list):
        local = [number(value) for value in rows[-1]["after"]]
        sampled = [int(client) for client in rows[-1]["clients"]]
        found.append(ClientAccuracies("local models of the last round", "global test set", local, sampled))
    for path in sorted(run.path.glob("personal/*/personal.json")):
        found += [one for one in _personal_models(PersonalDirectory(path.parent)) if one not in found]
    return found


def _personal_models(place: PersonalDirectory) -> Iterator[ClientAccuracies]:
    """Yield the accuracies before a personalization, and after each number of epochs (`fedsol personalize`)."""
    settings = place.read_description()["settings"]
    method, test = settings["method"], f"own {settings['test']} test set"
    results = place.read_results()
    clients = [result.client for result in results]
    if results:
        first = "initial model" if method == "local-only" else "global model"
        yield ClientAccuracies(first, test, [number(result.before) for result in results], clients)
    for epochs in epochs_of(results):
        models = f"{method}, {epochs} {'epoch' if epochs == 1 else 'epochs'}"
        values = [number(value) for value in accuracies_after(results, epochs).values()]
        yield ClientAccuracies(models, test, values, clients)
