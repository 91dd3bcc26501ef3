"""Several personalizations side by side: one table, and which clients lose by federating."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedsol.config.overrides import as_text
from fedsol.errors import InputError
from fedsol.federation.personal import PersonalResult, PersonalSettings
from fedsol.personalization.results import PersonalDirectory
from fedsol.personalization.statistics import summary_of
from fedsol.runs.groups import differences

SAME_CLIENTS = ("data_sha256", "partition_sha256", "held_out", "validation", "validation_by", "seed")


@dataclass(frozen=True)
class Entry:
    """A finished personalization and its label in a table."""

    label: str
    directory: PersonalDirectory
    description: Mapping[str, Any]
    results: list[PersonalResult]
    alone: Mapping[int, float] | None = None
    """Accuracy trained alone, by client, if known."""

    @property
    def is_alone(self) -> bool:
        """Whether this is Local-only itself."""
        return bool(self.description["settings"]["method"] == "local-only")

    @property
    def client_names(self) -> Sequence[str]:
        """The names of the clients; empty if they are numbers."""
        return list(self.description.get("client_names", ()))

    @property
    def federation(self) -> tuple[Any, ...]:
        """Equal for results of the same clients on the same tests."""
        return federation_of(self.description, PersonalSettings(**self.description["settings"]))


def federation_of(description: Mapping[str, Any], settings: PersonalSettings) -> tuple[Any, ...]:
    """Return a key, equal for the same clients on the same tests; `description` is of results or of a run."""
    return (*map(description.get, SAME_CLIENTS), *settings.tests)


def read_entries(paths: Sequence[Path], against: Sequence[Path] = ()) -> list[Entry]:
    """Read finished results, each with its clients' accuracy alone from a Local-only among them or in `against`."""
    entries = [_read(path) for path in paths]
    alone = {
        entry.federation: {
            result.client: accuracy for result in entry.results if (accuracy := result.after[-1].accuracy) is not None
        }
        for entry in [*entries, *read_baselines(against)]
        if entry.is_alone
    }
    return [
        replace(entry, label=label, alone=None if entry.is_alone else alone.get(entry.federation))
        for label, entry in zip(_labels(entries), entries, strict=True)
    ]


def read_baselines(paths: Sequence[Path]) -> list[Entry]:
    """Read Local-only results, given by their directory or by that of their run."""
    found = []
    for path in paths:
        inside = path / "personal" / "local-only"
        baseline = _read(inside if PersonalDirectory(inside).exists else path)
        if not baseline.is_alone:
            method = baseline.description["settings"]["method"]
            raise InputError(f"--against: {path}: its method must be local-only (got {method!r})")
        found.append(baseline)
    return found


def check_baselines(paths: Sequence[Path], federations: Collection[tuple[Any, ...]]) -> None:
    """Refuse Local-only results that belong to none of the federations."""
    for path, baseline in zip(paths, read_baselines(paths), strict=True):
        if baseline.federation not in federations:
            raise InputError(f"--against: {path}: must have the same clients and test sets as the runs")


def _read(path: Path) -> Entry:
    directory = PersonalDirectory(path)
    if not directory.exists:
        raise InputError(f"{path}: has no personalization results (no personal.json)")
    description, results = directory.read_description(), directory.read_results()
    if len(results) != description["clients"]:
        raise InputError(
            f"{path}: is not finished ({len(results)} of {description['clients']} clients); finish it with "
            f"fedsol personalize RUN --out {path} --resume"
        )
    return Entry("", directory, description, results)


def _labels(entries: Sequence[Entry]) -> list[str]:
    """Return algorithm and method; to tell them apart also settings, or the seed; as a last resort the folder."""
    ways = (
        _name,
        lambda entry: _name_and_settings(entry, entries),
        lambda entry: f"{_name(entry)}, seed {entry.description['seed']}",
        lambda entry: f"{_name_and_settings(entry, entries)}, seed {entry.description['seed']}",
        lambda entry: str(entry.directory.path),
    )
    found = [[way(entry) for way in ways] for entry in entries]
    counts = [Counter(labels) for labels in zip(*found, strict=True)]
    return [
        next((label for label, count in zip(labels, counts, strict=True) if count[label] == 1), labels[-1])
        for labels in found
    ]


def _name(entry: Entry) -> str:
    algorithm, method = entry.description["algorithm"]["name"], entry.description["settings"]["method"]
    if method in ("local-only", algorithm):
        return str(method)
    body = " (body)" if entry.description["trains"] == "body" else ""
    return f"{algorithm}{body} + {method}"


def _name_and_settings(entry: Entry, entries: Sequence[Entry]) -> str:
    """Return the name, and the values in which it differs from others of that name."""
    rivals = [_values(other) for other in entries if _name(other) == _name(entry)]
    own = _values(entry)
    return ", ".join([_name(entry), *(f"{key} = {as_text(own[key])}" for key in differences(rivals) if key in own)])


def _values(entry: Entry) -> dict[str, Any]:
    return {**entry.description["algorithm"], **entry.description["settings"]}


def as_rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the table as plain values: a row for each personalization and number of epochs, unseen clients apart."""
    return [
        {
            "label": label,
            "seed": entry.description["seed"],
            "before": summary["before"]["mean"],
            **row,
            **_losers_named(row, entry.client_names),
        }
        for entry in entries
        for label, summary in _summaries(entry)
        for row in summary["after"]
    ]


def _losers_named(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    if not names or "losers" not in row:
        return {}
    return {"losers": {**row["losers"], "names": [names[client] for client in row["losers"]["clients"]]}}


def _summaries(entry: Entry) -> list[tuple[str, dict[str, Any]]]:
    summary = summary_of(entry.results, entry.alone, entry.description.get("unseen", ()))
    apart = summary.pop("unseen", None)
    return [(entry.label, summary), *([(f"{entry.label}, clients never seen", apart)] if apart else [])]
