"""Command-line values (`--set`, comma lists), dotted keys, and the keys in which two experiments differ."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from fedsol.config.algorithm import make_algorithm
from fedsol.errors import InputError

if TYPE_CHECKING:
    from fedsol.config.experiment import Experiment

Number = TypeVar("Number", int, float)

MAX_DEPTH = 20
KEYS_WITHOUT_EFFECT = {
    "engine.kind",
    "engine.workers",
    "engine.address",
    "engine.client_cpus",
    "engine.client_gpus",
    "engine.timeout",
    "engine.patience",
    "data.root",
    "data.download",
    "data.cache",
    "data.private.test",
    "server.checkpoint_every",
}
"""Keys that may differ between the two halves of a resumed run: no result depends on them."""

RENAMED = {"engine.autocast": "engine.precision"}
"""Old names of keys, which stay valid."""
WITHOUT_OLD_NAME = {"engine.precision": "float32"}
"""What a run without the old key ran with."""


def parse_override(text: str) -> tuple[str, Any]:
    """Return the key and the value of `key=value`, with the value in TOML notation; a bare word is a string."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise InputError(f"--set {text!r}: must be key=value, such as --set algorithm.rho=1.5")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or as many brackets
        raise InputError(
            f"--set {key.strip()[:40]}: the value is too long or nested too deeply (got {value[:40]}…)"
        ) from error
    check_nesting({key: parsed}, f"--set {key.strip()[:40]}", key.count("."))
    return key.strip(), parsed


def check_nesting(tables: Mapping[str, Any], source: str, outer: int = 0) -> None:
    """Raise `InputError` if tables or lists are nested deeper than any setting, before anything recurses into them."""
    level: list[Any] = [tables]
    for _ in range(MAX_DEPTH - outer):
        level = [inner for value in level for inner in _inner(value)]
        if not level:
            return
    raise InputError(f"{source}: is nested too deeply; at most {MAX_DEPTH} levels are allowed")


def _inner(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()


def split_list(text: str) -> list[str]:
    """Return the parts of a comma-separated list, without surrounding spaces or empty parts."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_numbers(option: str, text: str, kind: Callable[[str], Number]) -> list[Number]:
    """Return the numbers of a comma-separated list; whole numbers are 0 or more."""
    try:
        numbers = [kind(part) for part in text.split(",")]
        if kind is int and min(numbers) < 0:
            raise ValueError("negative")
        return numbers
    except ValueError as error:
        kinds = "whole numbers" if kind is int else "numbers"
        raise InputError(f"{option}: must be {kinds} such as 0,1,2 (got {text!r})") from error


def apply_overrides(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables with dotted keys replaced.

    Naming another algorithm drops the settings of the old one; naming a column of clients drops the kind of partition.
    """
    result = copy.deepcopy(dict(tables))
    changes = {RENAMED.get(key, key): value for key, value in changes.items()}
    new_name = changes.get("algorithm.name")
    old = result.get("algorithm", {})
    if new_name is not None and isinstance(old, dict) and old.get("name") != new_name:
        result["algorithm"] = {}
    partition = _inner_table(result, "data", "partition")
    if changes.get("data.client") is not None and partition.pop("kind", "own") not in ("own", "own-grouped", "file"):
        partition.pop("clients", None)
    for key, value in changes.items():
        *path, last = key.split(".")
        table = result
        for part in path:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise InputError(f"{key}: {part!r} is a value, not a table")
        table[last] = value
    return result


def _inner_table(tables: dict[str, Any], *path: str) -> dict[str, Any]:
    """Return the table at a path, an empty one if there is none."""
    table: Any = tables
    for name in path:
        table = table.get(name) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def differing_keys(one: Experiment, other: Experiment) -> list[str]:
    """Return the dotted keys in which two experiments differ, except those that cannot change a result."""
    left, right = flatten(one.model_dump()), flatten(other.model_dump())
    keys = sorted((left.keys() | right.keys()) - (keys_without_effect(one) & keys_without_effect(other)))
    return [key for key in keys if left.get(key) != right.get(key)]


def keys_without_effect(experiment: Experiment) -> set[str]:
    """Return the dotted keys that cannot change the result of this experiment."""
    own = make_algorithm(experiment.algorithm).settings_without_effect()
    replaced = set() if experiment.client.steps is None else {"client.epochs"}
    private = () if experiment.privacy.is_on else type(experiment.privacy).model_fields
    without = {*(f"algorithm.{name}" for name in own), *(f"privacy.{name}" for name in private)}
    return KEYS_WITHOUT_EFFECT | without | replaced


def flatten(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one, with dotted keys."""
    result: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            result.update(flatten(value, f"{prefix}{key}."))
        else:
            result[prefix + key] = value
    return result


def as_text(value: Any) -> str:
    """Return a setting as a label or a table shows it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
