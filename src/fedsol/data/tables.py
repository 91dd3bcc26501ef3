"""Tables: rows of named columns, which become numbers, codes of categories, and targets."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedsol.config.tables import DataSettings, unknown_name
from fedsol.core.paths import user_path
from fedsol.data.arrays import Source, choose_test, number_clients
from fedsol.data.cache import CACHE_VERSION, cached
from fedsol.data.columns import (
    are_whole,
    as_classes,
    as_numbers,
    check_column,
    count_missing,
    encode,
    learn,
    require_present,
    row_of,
    texts,
)
from fedsol.data.folders import CACHE_FOLDER
from fedsol.data.frames import checked_frame, read_frame
from fedsol.data.targets import make_targets
from fedsol.data.types import Array, Dataset, Split
from fedsol.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

TASKS = ("classification", "multilabel", "regression")
"""The kinds of task that a table has targets for."""
LARGE_FILE = 64_000_000
"""Bytes from which a file's rows are stored as plain arrays."""
READING = ("target", "features", "categorical", "client", "missing", "separator", "test_fraction")
"""The settings that decide what a table becomes."""
MOST_NAMES = 30
"""The most names of columns that an error lists."""


@dataclass(frozen=True)
class Roles:
    """The columns of a table by what they are for."""

    targets: tuple[str, ...]
    features: tuple[str, ...]
    client: str | None


def table_dataset(
    frame: "pd.DataFrame", test: "pd.DataFrame | None", settings: DataSettings, source: Source
) -> Dataset:
    """Return the Dataset of a table: scaling, categories and classes are learned from the training rows alone."""
    if source.kind not in TASKS:
        raise InputError(f"task.kind: {source.kind!r} does not fit a table; allowed: {', '.join(TASKS)}")
    frame = checked_frame(frame, source.name)
    roles = _choose_roles(frame, settings, source.name)
    for name in roles.features:
        check_column(frame[name], name in settings.categorical, settings.missing, source.name)
    targets = targets_of(frame, roles.targets, source.kind, source.name)
    clients = None if roles.client is None else _clients_of(frame[roles.client], source.name)
    where = source.name if test is None else settings.test or f"{source.name}: test"
    if test is None:
        mask = _test_mask(targets, clients, source)
        train, test, wanted = frame[~mask], frame[mask], targets[mask]
        targets, clients = targets[~mask], None if clients is None else clients[~mask]
    else:
        if source.test_fraction is not None:
            raise InputError(
                f"data.test_fraction: must not be set, as there are test rows (got {source.test_fraction})"
            )
        test = checked_frame(test, where)
        require_columns(test, (*roles.targets, *roles.features), where)
        if settings.missing == "refuse":
            require_present(test, roles.features, where)
        train, wanted = frame, targets_of(test, roles.targets, source.kind, where)
    columns = learn(train, roles.features, settings, source.name)
    found = make_targets(targets, wanted, source.kind, where)
    names, numbers = number_clients(clients)
    return Dataset(
        name=source.name,
        train=Split(encode(train, columns, source.name), found.train, numbers),
        test=Split(encode(test, columns, where), found.test),
        classes=found.size,
        mean=(0.0,),
        std=(1.0,),
        channels=1,
        class_names=found.names if source.kind == "classification" else roles.targets,
        client_names=names,
        columns=columns,
        target_mean=found.mean,
        target_std=found.std,
    )


def load_table(path: Path, settings: DataSettings, source: Source) -> Dataset:
    """Return the Dataset of a CSV or Parquet file; of a large one, stored once and memory-mapped from then on."""

    def make() -> Dataset:
        test = None if settings.test is None else read_frame(user_path(settings.test, "data.test"), settings.separator)
        return replace(table_dataset(read_frame(path, settings.separator), test, settings, source), name=path.stem)

    if not path.is_file() or path.stat().st_size < LARGE_FILE:
        return make()
    folder = path.parent / CACHE_FOLDER if settings.cache is None else Path(settings.cache)
    return cached(folder / _cache_key(path, settings, source.kind), make)


def _cache_key(path: Path, settings: DataSettings, kind: str) -> str:
    files = [path] if settings.test is None else [path, user_path(settings.test, "data.test")]
    states = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    chosen = settings.model_dump(include={*READING})
    text = json.dumps([CACHE_VERSION, kind, states, chosen], sort_keys=True)
    return f"{path.stem}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def check_no_table(settings: DataSettings, is_given: str) -> None:
    """Raise `InputError` if a setting of tables is set for other data."""
    for field in ("test", "target", "features", "categorical", "client", "missing", "separator"):
        if getattr(settings, field) != DataSettings.model_fields[field].default:
            raise InputError(f"data.{field}: only applies to tables, and {is_given}")


def check_columns(settings: DataSettings, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the targets; raise `InputError` if `[data]` names a column that the table does not have."""
    targets = (settings.target,) if isinstance(settings.target, str) else tuple(settings.target or ())
    for field, names in (
        ("target", targets),
        ("features", settings.features),
        ("categorical", settings.categorical),
        ("client", [settings.client] if settings.client is not None else []),
    ):
        _check_names(f"data.{field}", names, columns)
    return targets


def _choose_roles(frame: "pd.DataFrame", settings: DataSettings, source: str) -> Roles:
    columns = [*frame.columns]
    if settings.target is None:
        raise InputError(f"data.target: is missing; set it to the column to predict, one of {_listed(columns)}")
    targets = check_columns(settings, columns)
    taken = {*targets, settings.client}
    features = settings.features or [name for name in columns if name not in taken]
    for name in features:
        if name in taken:
            role = "target" if name in targets else "client"
            raise InputError(f"data.features: {name!r} must not be among them: it is data.{role}")
        if not name:
            raise InputError(
                f"{source}: column {1 + columns.index(name)} has no name (an index that was saved with the table?); "
                "remove it, or list the columns to use in data.features"
            )
    if not features:
        raise InputError(f"{source}: has no columns but {_listed([name for name in columns if name in taken])}")
    unused = [name for name in settings.categorical if name not in features]
    if unused:
        raise InputError(f"data.categorical: {unused[0]!r} must be a feature")
    return Roles(targets, tuple(features), settings.client)


def targets_of(frame: "pd.DataFrame", names: Sequence[str], kind: str, source: str) -> Array:
    """Return the targets of a task: classes (N,), or numbers (N, targets)."""
    for name in names:
        _require_values(frame[name], "data.target", "every row must have a target", source)
    if kind == "classification":
        if len(names) > 1:
            raise InputError(
                f"data.target: must be one column for task.kind = 'classification' (got {len(names)}); several are for "
                "'multilabel' or 'regression'"
            )
        return _classes_of(frame[names[0]], source)
    columns = [as_numbers(frame[name], f"{source}: data.target") for name in names]
    array = np.stack(columns, axis=1)
    right = np.isin(array, (0, 1)) if kind == "multilabel" else np.isfinite(array)
    if not right.all():
        row, column = np.argwhere(~right)[0].tolist()
        rule = "0 or 1 for task.kind = 'multilabel'" if kind == "multilabel" else "finite"
        raise InputError(
            f"{source}: data.target: {names[column]!r} must be {rule} (got {array[row, column]:g} in row {row + 1})"
        )
    return array


def _classes_of(series: "pd.Series", source: str) -> Array:
    """Return a column of classes as integers, booleans or text."""
    values = as_classes(series)
    if values.dtype.kind == "f":
        first = values[~are_whole(values)][0]
        raise InputError(
            f"{source}: data.target: {series.name!r} has real numbers, such as {first:g}; set task.kind = "
            "'regression', or choose a column of classes"
        )
    different = len(np.unique(values))
    if different > max(MOST_NAMES, len(values) / 2):
        raise InputError(
            f"{source}: data.target: {series.name!r} has {different} different values in {len(values)} rows, too many "
            "for classes; for numbers, set task.kind = 'regression'"
        )
    return values


def _clients_of(series: "pd.Series", source: str) -> Array:
    _require_values(series, "data.client", "every row must have a client", source)
    values = as_classes(series)
    return values if values.dtype.kind != "f" else np.array(texts(series), dtype=str)


def _require_values(series: "pd.Series", field: str, rule: str, source: str) -> None:
    missing = series.isna().to_numpy()
    if missing.any():
        count, row = count_missing(missing), row_of(series, missing)
        raise InputError(f"{source}: {field}: {series.name!r} has {count}, the first in row {row}; {rule}")


def _test_mask(targets: Array, clients: Array | None, source: Source) -> NDArray[np.bool_]:
    """Return which rows become the test set: a share of each class, and within it of each client.

    In other tasks it is a share of each client, and within it of all values of a single target.
    """
    if source.test_fraction is None:
        raise InputError(
            f"{source.name}: has no test rows; set data.test to a file with them, or data.test_fraction to split these"
        )
    if clients is None:
        return _with_all_classes(choose_test(targets, source.name, source.test_fraction), targets, source)
    by = targets.reshape(len(targets), -1)[:, 0] if targets.size == len(targets) else np.zeros(len(targets))
    order = np.lexsort((clients, by) if source.kind == "classification" else (by, clients))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return _with_all_classes(choose_test(ranks, source.name, source.test_fraction), targets, source)


def _with_all_classes(mask: NDArray[np.bool_], targets: Array, source: Source) -> NDArray[np.bool_]:
    """Return the mask of the test set without the rows of classes that no training row would have."""
    if source.kind != "classification":
        return mask
    fewer = mask & np.isin(targets, targets[~mask])
    return fewer if fewer.any() else mask


def _check_names(field: str, names: Sequence[str], columns: Sequence[str]) -> None:
    for place, name in enumerate(names):
        if name not in columns:
            raise _unknown_column(field, name, columns)
        if name in names[:place]:
            raise InputError(f"{field}: {name!r} must occur once")


def _unknown_column(field: str, name: str, columns: Sequence[str]) -> InputError:
    if all(_is_number(column) for column in columns):
        return InputError(
            f"{field}: unknown value {name!r}; the first row must have the names of the columns "
            f"(got {_listed(columns)})"
        )
    if len(columns) <= MOST_NAMES:
        return unknown_name(field, name, columns)
    import difflib

    near = difflib.get_close_matches(name, columns, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? The" if near else "the"
    return InputError(f"{field}: unknown value {name!r}; {hint} table has {len(columns)} columns: {_listed(columns)}")


def require_columns(frame: "pd.DataFrame", names: Sequence[str], source: str) -> None:
    """Raise `InputError` if the table does not have one of the columns."""
    for name in names:
        if name not in frame.columns:
            raise InputError(f"{source}: has no column {name!r}; it has {_listed([*frame.columns])}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
