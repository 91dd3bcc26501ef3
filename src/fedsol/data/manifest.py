"""Partitions on disk: manifests that carry their own hash, and plain index files written by users."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsol.core.files import write_atomically
from fedsol.data.heterogeneity import heterogeneity
from fedsol.errors import InputError

Indices: TypeAlias = NDArray[np.int64]
Partition: TypeAlias = list[Indices]
"""The indices of every client's samples, ascending."""

FORMAT = "fedsol-partition/1"
_INT64_MAX = int(np.iinfo(np.int64).max)
_FIELDS: dict[str, type] = {"dataset": str, "samples": int, "settings": dict, "seed": int}


@dataclass(frozen=True)
class Manifest:
    """A partition, and the dataset, number of samples, settings (JSON values) and seed that it was made from."""

    dataset: str
    samples: int
    settings: Mapping[str, Any]
    seed: int
    partition: Sequence[NDArray[np.integer[Any]]]

    @cached_property
    def sha256(self) -> str:
        """The hash of the partition alone."""
        return partition_hash(self.partition)


def partition_hash(partition: Sequence[NDArray[np.integer[Any]]]) -> str:
    """Return the SHA-256 over int64 little-endian numbers: clients, the size of each, then all indices in order."""
    digest = hashlib.sha256()
    digest.update(np.array([len(partition), *map(len, partition)], dtype="<i8").tobytes())
    for indices in partition:
        digest.update(np.ascontiguousarray(indices, dtype="<i8").tobytes())
    return digest.hexdigest()


def one_class_each(labels: ArrayLike, classes: int) -> tuple[NDArray[Any], int]:
    """Return the class of every sample and the number of classes; one class for all if samples have none."""
    array = np.asarray(labels)
    has_classes = array.ndim == 1 and array.dtype.kind in "iu"
    return (array, classes) if has_classes else (np.zeros(len(array), dtype=np.int64), 1)


def label_counts(labels: ArrayLike, partition: Sequence[NDArray[np.integer[Any]]], classes: int) -> Indices:
    """Return the number of samples of every class at every client, shape (clients, classes).

    Samples that do not have one class each are counted as if they all had the same.
    """
    array, classes = one_class_each(labels, classes)
    if len(array) and not (array.min() >= 0 and array.max() < classes):
        raise InputError(f"labels: must be 0 to {classes - 1} (got {array.min()} to {array.max()})")
    counts = [np.bincount(array[indices], minlength=classes) for indices in partition]
    return np.array(counts, dtype=np.int64).reshape(len(partition), classes)


def save_manifest(path: Path, manifest: Manifest, class_counts: NDArray[np.integer[Any]] | None = None) -> None:
    """Write the manifest atomically, one client per line.

    `class_counts`, the samples of each class at each client, and how heterogeneous they are, is for readers and plots
    only: it is not hashed, and not read back.
    """
    head = {"format": FORMAT, **{key: getattr(manifest, key) for key in (*_FIELDS, "sha256")}}
    lines = [f'  "{key}": {json.dumps(value, allow_nan=False)},' for key, value in head.items()]
    if class_counts is not None:
        if class_counts.any():
            lines.append(f'  "heterogeneity": {json.dumps(asdict(heterogeneity(class_counts)))},')
        lines.append(f'  "class_counts": {_one_per_line(class_counts.tolist())},')
    clients = _one_per_line([indices.tolist() for indices in manifest.partition])
    write_atomically(path, "\n".join(["{", *lines, f'  "clients": {clients}', "}", ""]))


def _one_per_line(lists: Sequence[list[int]]) -> str:
    return "[\n" + ",\n".join(f"    {json.dumps(values)}" for values in lists) + "\n  ]"


def load_manifest(path: str | Path) -> Manifest:
    """Read a manifest; raise InputError unless it is complete, well formed and has the hash that it names."""
    return _manifest_from(_read_json(path), path)


def from_file(path: str | Path, total: int) -> Partition:
    """Read the partition in a JSON file: a manifest, or lists of indices, or `{"clients": …}` with such lists.

    Lists may be named, as in `{"clients": {"anna": [0, 2], "ben": [1]}}`; clients have the order of the file. Samples
    that no client has are not used; each index may occur once.
    """
    content = _read_json(path)
    if isinstance(content, dict) and "format" in content:
        manifest = _manifest_from(content, path)
        if manifest.samples != total:
            raise InputError(
                f"{path}: samples must be {total}, the number of training samples (got {manifest.samples}, "
                f"of the dataset {manifest.dataset!r})"
            )
        return [np.sort(indices) for indices in manifest.partition]
    clients = content.get("clients") if isinstance(content, dict) else content
    return [np.sort(indices) for indices in _checked_clients(clients, total, path)]


def _read_json(path: str | Path) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=_unique_keys)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise InputError(f"{path}: is nested too deeply; it must be one list of indices per client") from error
    except ValueError as error:  # not UTF-8, not JSON, a repeated key, or a number of absurd length
        raise InputError(f"{path}: is not valid JSON: {error}") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse repeated keys: JSON lets the last one win, which would silently drop a client."""
    content = dict(pairs)
    if len(content) != len(pairs):
        repeated = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ValueError(f"the key {repeated!r} occurs twice")
    return content


def _manifest_from(content: Any, path: str | Path) -> Manifest:
    found = content.get("format") if isinstance(content, dict) else type(content).__name__
    if found != FORMAT:
        raise InputError(f"{path}: format must be {FORMAT!r} (got {found!r})")
    for key, kind in {**_FIELDS, "sha256": str}.items():
        if type(content.get(key)) is not kind:
            raise InputError(f"{path}: {key} must be of type {kind.__name__} (got {content.get(key)!r})")
    partition = _checked_clients(content.get("clients"), content["samples"], path)
    manifest = Manifest(partition=partition, **{key: content[key] for key in _FIELDS})
    if manifest.sha256 != content["sha256"]:
        raise InputError(
            f"{path}: sha256 must be {manifest.sha256}, the hash of its clients (got {content['sha256']}): the file "
            "was changed after it was saved"
        )
    return manifest


def _checked_clients(clients: Any, total: int, path: str | Path) -> Partition:
    """Return the clients' indices in the order of the file, each an integer below `total` that occurs once."""
    if not isinstance(clients, list | dict) or len(clients) == 0:
        raise InputError(f"{path}: clients must be lists of indices, one per client (got {_short(clients)})")
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
        index = indices[order[repeats[0]]]
        raise InputError(f"{path}: index {index} must occur once (got it at client {first!r} and at client {second!r})")


def _checked_indices(values: Any, total: int, where: str) -> Indices:
    """Return a client's indices; it has none in the manifest of a deployment whose nodes alone know their samples."""
    if not isinstance(values, list) or (not values and total):
        raise InputError(f"{where} must be a list of at least one index (got {_short(values)})")
    for value in values:
        # A bool is an int in Python, but not an index.
        if type(value) is not int or not 0 <= value < min(total, _INT64_MAX):
            raise InputError(f"{where}: indices must be integers from 0 to {total - 1} (got {_short(value)})")
    return np.array(values, dtype=np.int64)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
