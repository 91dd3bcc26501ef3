"""Partitions on disk: a manifest that carries its own hash, and plain files of indices that users bring."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsol.core.files import write_atomically
from fedsol.errors import InputError

Indices: TypeAlias = NDArray[np.int64]
Partition: TypeAlias = list[Indices]
"""The indices of every client's samples, ascending."""

FORMAT = "fedsol-partition/1"
_INT64_MAX = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Manifest:
    """A partition with where it came from; `sha256` is the hash of the partition alone."""

    dataset: str
    samples: int
    settings: Mapping[str, Any]
    seed: int
    sha256: str
    partition: Partition


def partition_hash(partition: Sequence[NDArray[np.integer[Any]]]) -> str:
    """SHA-256 over int64 little-endian numbers: clients, the size of each, then all indices in order."""
    digest = hashlib.sha256()
    digest.update(np.array([len(partition), *map(len, partition)], dtype="<i8").tobytes())
    for indices in partition:
        digest.update(np.ascontiguousarray(indices, dtype="<i8").tobytes())
    return digest.hexdigest()


def label_counts(labels: ArrayLike, partition: Partition, classes: int) -> Indices:
    """Samples of every class at every client, shape (clients, classes)."""
    array = np.asarray(labels)
    if len(array) and not (array.min() >= 0 and array.max() < classes):
        raise InputError(f"labels are {array.min()} to {array.max()}; allowed: 0 to {classes - 1}")
    counts = [np.bincount(array[indices], minlength=classes) for indices in partition]
    return np.array(counts, dtype=np.int64).reshape(len(partition), classes)


def save_manifest(
    path: str | Path,
    partition: Sequence[NDArray[np.integer[Any]]],
    *,
    dataset: str,
    samples: int,
    settings: Mapping[str, Any],
    seed: int,
    class_counts: NDArray[np.integer[Any]] | None = None,
) -> Manifest:
    """Writes the manifest atomically, one client per line, and returns it; `settings` are JSON values.

    `class_counts`, the samples of each class at each client, is for people and pictures: it is no part of the hash,
    and never read back as the partition.
    """
    manifest = Manifest(
        dataset=dataset,
        samples=samples,
        settings=dict(settings),
        seed=seed,
        sha256=partition_hash(partition),
        partition=[np.asarray(indices, dtype=np.int64) for indices in partition],
    )
    head = {
        "format": FORMAT,
        "dataset": dataset,
        "samples": samples,
        "settings": manifest.settings,
        "seed": seed,
        "sha256": manifest.sha256,
    }
    lines = [f'  "{key}": {json.dumps(value, allow_nan=False)},' for key, value in head.items()]
    if class_counts is not None:
        lines.append(f'  "class_counts": {_one_per_line(class_counts.tolist())},')
    clients = _one_per_line([indices.tolist() for indices in manifest.partition])
    text = "\n".join(["{", *lines, f'  "clients": {clients}', "}", ""])
    write_atomically(Path(path), text)
    return manifest


def _one_per_line(lists: Sequence[list[int]]) -> str:
    return "[\n" + ",\n".join(f"    {json.dumps(values)}" for values in lists) + "\n  ]"


def load_manifest(path: str | Path) -> Manifest:
    """Reads a manifest; raises InputError unless it is complete, well formed and has the hash it claims."""
    return _manifest_from(_read_json(path), path)


def from_file(path: str | Path, total: int) -> Partition:
    """The partition in a JSON file: a manifest, or lists of indices, or `{"clients": …}` with such lists.

    Lists may be named, as in `{"clients": {"anna": [0, 2], "ben": [1]}}`; clients keep the order of the file.
    Samples that no client names stay unused; naming one twice is an error.
    """
    content = _read_json(path)
    if isinstance(content, dict) and "format" in content:
        manifest = _manifest_from(content, path)
        if manifest.samples != total:
            raise InputError(
                f"{path}: samples is {manifest.samples}, but the data has {total} training samples; "
                f"allowed: a partition of the same data (this one is of {manifest.dataset!r})"
            )
        return [np.sort(indices) for indices in manifest.partition]
    clients = content.get("clients") if isinstance(content, dict) else content
    return [np.sort(indices) for indices in _checked_clients(clients, total, path)]


def _read_json(path: str | Path) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=_unique_keys)
    except OSError as error:
        raise InputError(f"cannot read the partition file {path}: {error.strerror}") from error
    except RecursionError as error:
        raise InputError(f"{path} is nested too deeply; allowed: a list of indices per client") from error
    except ValueError as error:  # not UTF-8, not JSON, a key that occurs twice, or a number of absurd length
        raise InputError(f"{path} is not a valid JSON file: {error}") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON lets the last of two equal keys win, which would drop a client without a word."""
    content = dict(pairs)
    if len(content) != len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ValueError(f"the key {twice!r} occurs twice")
    return content


def _manifest_from(content: Any, path: str | Path) -> Manifest:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise InputError(f"{path}: format is {found!r}; allowed: {FORMAT!r}")
    fields: dict[str, type] = {"dataset": str, "samples": int, "settings": dict, "seed": int, "sha256": str}
    for key, kind in fields.items():
        if type(content.get(key)) is not kind:
            raise InputError(f"{path}: {key} is {content.get(key)!r}; allowed: a value of type {kind.__name__}")
    partition = _checked_clients(content.get("clients"), content["samples"], path)
    actual = partition_hash(partition)
    if actual != content["sha256"]:
        raise InputError(
            f"{path}: sha256 is {content['sha256']}, but its clients hash to {actual}: the file was changed "
            "after it was saved; allowed: an unchanged manifest, or a plain list of lists"
        )
    return Manifest(partition=partition, **{key: content[key] for key in fields})


def _checked_clients(clients: Any, total: int, path: str | Path) -> Partition:
    """The clients' indices in the order of the file, each an integer below `total` that occurs once."""
    if not isinstance(clients, list | dict) or len(clients) == 0:
        raise InputError(f"{path}: clients is {_short(clients)}; allowed: lists of indices, one for each client")
    named = clients if isinstance(clients, dict) else dict(enumerate(clients))
    partition = [_checked_indices(values, total, f"{path}: client {name!r}") for name, values in named.items()]
    _check_unique(partition, list(named), path)
    return partition


def _check_unique(partition: Partition, names: list[Any], path: str | Path) -> None:
    indices = np.concatenate(partition)
    owners = np.repeat(np.arange(len(partition)), [len(own) for own in partition])
    order = np.argsort(indices, kind="stable")
    repeats = np.flatnonzero(np.diff(indices[order]) == 0)
    if len(repeats):
        first, second = (names[owners[order[position]]] for position in (repeats[0], repeats[0] + 1))
        raise InputError(
            f"{path}: client {second!r} names index {indices[order[repeats[0]]]}, which client {first!r} has "
            "named before; allowed: each index once"
        )


def _checked_indices(values: Any, total: int, where: str) -> Indices:
    if not isinstance(values, list) or not values:
        raise InputError(f"{where} is {_short(values)}; allowed: a list of at least one index")
    for value in _wrong_indices(values, total):
        raise InputError(f"{where} names index {_short(value)}; allowed: integers from 0 to {total - 1}")
    return np.array(values, dtype=np.int64)


def _wrong_indices(values: list[Any], total: int) -> Iterator[Any]:
    """Booleans are integers to Python, but not indices to anybody."""
    return (value for value in values if type(value) is not int or not 0 <= value < min(total, _INT64_MAX))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
