"""What a run's files say about its model: the facts of a model card."""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedsol.config.tables import PRIVATE
from fedsol.core.files import read_json_object
from fedsol.core.randomness import one_torch_thread
from fedsol.core.weights import Weights
from fedsol.errors import InputError
from fedsol.federation.federation import build_federation
from fedsol.runs.rows import Row, privacy_text

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from fedsol.data.description import DataDescription
    from fedsol.runs.run import Run


def model_facts(run: "Run", rounds: int, data: "DataDescription") -> dict[str, Any]:
    """Return how a run's model after some rounds was made and its results, as JSON values.

    Of a private run, the card leaves out what is known of each client's own samples, which no noise covers.
    """
    facts: dict[str, Any] = {"rounds": rounds, **_environment(run.environment)}
    if run.directory is not None:
        facts |= {key: value for key, value in run.files.read_hashes().items() if value is not None}
    words = privacy_text(run.rows[:rounds])
    if words:
        facts["privacy"] = words
    row = last_evaluated(run.rows[:rounds])
    if row is not None:
        hidden = ("held_out_",) if words else ()
        facts["metrics"] = {
            key: value for key, value in row.items() if _is_metric(key, value) and not key.startswith(hidden)
        }
        facts["evaluated"] = f"after round {row['round']}"
        shares = row.get("class_accuracy")
        if shares and len(shares) == len(data.names):
            facts["by_class"] = dict(zip(data.names, shares, strict=True))
    counts = _label_counts(run)
    if counts:
        facts["clients"] = len(counts)
    if counts and not words:
        is_known = row is not None and run.experiment.task.kind == "classification"
        facts |= by_client(counts, row.get("class_accuracy") if row and is_known else None)
    return facts


def by_client(counts: Sequence[Sequence[int]], class_accuracy: Sequence[float | None] | None) -> dict[str, Any]:
    """Return a row per client: its samples, and the accuracy by class on the test set, weighted by its labels."""
    rows: list[dict[str, Any]] = []
    for client, own in enumerate(counts):
        row: dict[str, Any] = {"client": client, "samples": sum(own)}
        if class_accuracy:
            known = [(count, share) for count, share in zip(own, class_accuracy, strict=True) if share is not None]
            total = sum(count for count, _ in known)
            row["accuracy"] = sum(count * share for count, share in known) / total if total else None
        rows.append(row)
    note = (
        "Accuracy: that of each class on the test set, weighted by the labels of the client." if class_accuracy else ""
    )
    return {"by_client": rows, "by_client_note": note}


def hold_out_facts(run: "Run", weights: Weights, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rows by client with the primary metric on each hold-out set.

    Nothing without these or the data, and nothing of a private run.
    """
    is_hidden = run.settings.get("data.name") == PRIVATE or privacy_text(run.rows)
    if is_hidden or not run.settings.get("data.partition.held_out"):
        return {}
    try:
        federation = build_federation(run.experiment)
        if run.directory:
            run.files.check_same_run(federation)
    except InputError as error:
        log.warning("the model card has no hold-out results: %s", error)
        return {}
    primary = federation.objective.primary
    known = {row["client"]: row for row in rows}
    found = []
    with one_torch_thread():
        for client in range(federation.clients):
            own = federation.exchange.complete(weights, run.own_state(client)) if federation.exchange.kept else weights
            tally = federation.evaluate_client(own, client)
            count = len(federation.held_out_samples(client))
            value = None if not count else tally.accuracy if tally.primary is None else tally.primary
            row = known.get(client, {"client": client})
            found.append({**row, "held out": count, f"held-out {primary.name}": value})
    return {"by_client": found}


def last_evaluated(rows: Sequence[Row]) -> Row | None:
    """Return the last row with a test result."""
    return next((row for row in reversed(rows) if row["test_loss"] is not None), None)


def _is_metric(key: str, value: Any) -> bool:
    is_count_of_none = key.endswith("_clients") and not value
    return (
        key.startswith(("test_", "held_out_", "validation_"))
        and isinstance(value, int | float)
        and not is_count_of_none
    )


def _environment(environment: Mapping[str, Any]) -> dict[str, Any]:
    facts = {key: environment[key] for key in ("started", "commit", "commit_modified") if key in environment}
    version = environment.get("packages", {}).get("fedsol")
    return {**facts, "fedsol": version} if version else facts


def _label_counts(run: "Run") -> list[list[int]]:
    """Return the samples of each class at each client; without classes, the samples of each client."""
    path = run.directory and run.directory / "partition.json"
    content = read_json_object(path) if path and path.is_file() else {}
    if run.experiment.task.kind == "classification" and "class_counts" in content:
        return list(content["class_counts"])
    return [[len(indices)] for indices in content.get("clients", [])]
