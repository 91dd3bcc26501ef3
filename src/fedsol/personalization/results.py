"""PersonalDirectory: the files of one personalization, valid after a kill at any instant."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.core.files import (
    append_text,
    disk_errors_named,
    read_json_lines,
    sha256,
    tensors_to_bytes,
    write_atomically,
)
from fedsol.core.weights import Weights
from fedsol.data.description import client_names_of
from fedsol.data.manifest import partition_hash
from fedsol.errors import InputError
from fedsol.federation.federation import Federation
from fedsol.federation.personal import PersonalResult, PersonalSettings
from fedsol.federation.sampling import unseen_clients
from fedsol.personalization.statistics import summary_of
from fedsol.runs.directory import RunDirectory, data_hash
from fedsol.runs.environment import environment

DESCRIPTION, ROWS = "personal.json", "clients.jsonl"


def parts_of(experiment: Experiment) -> dict[str, Any]:
    """Return what decides which of its samples a client trains on."""
    data = experiment.data
    validation = {"validation": data.validation, "validation_by": data.validation_by} if data.validation else {}
    return {"held_out": data.partition.held_out, **validation}


def describe(federation: Federation, weights: Weights, settings: PersonalSettings) -> dict[str, Any]:
    """Return everything that the results depend on: for readers, and to check that a resumed one is the same."""
    experiment = federation.experiment
    unseen = sorted(unseen_clients(experiment, federation.clients))
    return {
        "algorithm": experiment.algorithm,
        "trains": experiment.client.trains,
        "data": experiment.data.name,
        "data_sha256": data_hash(federation.dataset),
        "partition_sha256": partition_hash([indices.numpy() for indices in federation.partition]),
        **parts_of(experiment),
        "model": experiment.model.model_dump(mode="json", exclude=None if experiment.model.lora.rank else {"lora"}),
        "client": experiment.client.model_dump(mode="json"),
        "clients": federation.clients,
        "seed": experiment.seed,
        **({"unseen": unseen} if unseen else {}),
        **({"client_names": list(names)} if (names := client_names_of(federation.dataset, experiment.data)) else {}),
        "weights_sha256": sha256(tensors_to_bytes(weights)),
        "settings": settings.model_dump(mode="json"),
    }


class PersonalDirectory:
    """`personal.json` is the request, `clients.jsonl` has a line per finished client; the rest is derived."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def models(self) -> Path:
        """The folder of the clients' models, if they are saved."""
        return self.path / "models"

    @property
    def exists(self) -> bool:
        """Whether a personalization was started here."""
        return (self.path / DESCRIPTION).is_file()

    def locked(self) -> AbstractContextManager[None]:
        """Lock out other processes."""
        return RunDirectory(self.path).locked()

    def begin(self, description: Mapping[str, Any]) -> None:
        """Start, or resume the same personalization."""
        if self.exists:
            started_with = self.read_description()
            known = description.keys() & started_with.keys()  # earlier versions wrote fewer
            if different := sorted(key for key in known if started_with[key] != description[key]):
                raise InputError(f"{self.path}: was started with different values of {', '.join(different)}")
            results = self.read_results()
            with disk_errors_named(self.path):
                write_atomically(self.path / ROWS, "".join(map(_json_line, results)))
            return
        with disk_errors_named(self.path):
            write_atomically(self.path / ROWS, b"")
            write_atomically(self.path / "environment.json", json.dumps(environment(), indent=2) + "\n")
            write_atomically(self.path / DESCRIPTION, json.dumps(description, indent=2) + "\n")

    def read_description(self) -> dict[str, Any]:
        """Return the request; settings that are not in the file have their defaults."""
        path = self.path / DESCRIPTION
        try:
            description = dict(json.loads(path.read_text(encoding="utf-8")))
            settings = PersonalSettings(**description["settings"])
        except (OSError, ValueError, KeyError, TypeError, InputError) as error:
            raise InputError(f"{path}: must be the description of a personalization ({error})") from error
        return {**description, "settings": settings.model_dump(mode="json")}

    def read_results(self) -> list[PersonalResult]:
        """Return the results of the finished clients, by id."""
        path, results = self.path / ROWS, []
        for number, values in enumerate(read_json_lines(path), start=1):
            try:
                results.append(PersonalResult.from_values(values))
            except ValueError as error:
                raise InputError(f"{path}: line {number}: must be the result of a client ({error})") from error
        return sorted(results, key=lambda result: result.client)

    def append(self, result: PersonalResult) -> None:
        """Append the result of a client."""
        append_text(self.path / ROWS, _json_line(result))

    def finish(self, results: Sequence[PersonalResult], alone: Mapping[int, float] | None) -> None:
        """Write the table of clients and the summary."""
        description = self.read_description()
        summary = summary_of(results, alone, description.get("unseen", ()))
        table = client_table(results, alone, description.get("client_names", ()))
        with disk_errors_named(self.path):
            write_atomically(self.path / "clients.csv", table)
            write_atomically(self.path / "summary.json", json.dumps(summary, indent=2) + "\n")


def client_table(
    results: Sequence[PersonalResult], alone: Mapping[int, float] | None, names: Sequence[str] = ()
) -> str:
    """Return the CSV table, a line per client: name, sizes, accuracy before and after, and accuracy trained alone."""
    mixes = any(outcome.mixing is not None for result in results for outcome in result.after)
    rows: list[dict[str, Any]] = []
    for result in results:
        row = {key: value for key, value in asdict(result).items() if key != "after"}
        if names:
            row = {"client": result.client, "name": names[result.client], **row}
        row |= {f"after_{outcome.epochs}": outcome.accuracy for outcome in result.after}
        if mixes:
            row |= {f"mixing_{outcome.epochs}": outcome.mixing for outcome in result.after}
        if alone is not None:
            row["local_only"] = other = alone.get(result.client)
            for outcome in result.after:
                own = outcome.accuracy
                row[f"loses_{outcome.epochs}"] = None if own is None or other is None else int(other > own)
        rows.append(row)
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _json_line(result: PersonalResult) -> str:
    return json.dumps(asdict(result)) + "\n"
