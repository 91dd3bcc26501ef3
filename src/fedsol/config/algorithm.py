"""The `[algorithm]` table: a name from the catalog or `module:Class`, and that class's settings.

Classes are imported on first use, so the configuration itself knows none of them; that is why they are `Any` here.
`fedsol.algorithms` has the same functions with their types.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, get_type_hints

from pydantic import BaseModel, ValidationError, create_model

from fedsol.config.catalog import ALGORITHMS, DEFAULT_ALGORITHM
from fedsol.config.tables import Settings, input_error, unknown_name
from fedsol.core.imports import import_object
from fedsol.errors import InputError

_imports_code = ContextVar("imports_code", default=True)


@contextmanager
def without_own_code() -> Iterator[None]:
    """Take the settings of algorithms outside of the catalog as they are, so that no code of theirs is imported."""
    token = _imports_code.set(False)
    try:
        yield
    finally:
        _imports_code.reset(token)


def is_taken_as_it_is(name: Any) -> bool:
    """Return whether an algorithm is not imported now: only its name and settings are known."""
    return not _imports_code.get() and isinstance(name, str) and ":" in name and name not in ALGORITHMS


def find_algorithm(name: str) -> Any:
    """Return the class of a registered name or of `module:Class`."""
    if name in ALGORITHMS:
        known = ALGORITHMS[name]
        return _built_in(known) if isinstance(known, str) else known
    if ":" not in name:
        raise unknown_name("algorithm.name", name, ALGORITHMS)
    found = import_object(name, "algorithm.name")
    if not (isinstance(found, type) and issubclass(found, _base()) and "__dataclass_params__" in vars(found)):
        raise InputError(
            f"algorithm.name: must be a @dataclass(frozen=True) derived from fedsol.Algorithm (got {name!r})"
        )
    return found


@functools.cache
def _built_in(reference: str) -> Any:
    return import_object(reference, "algorithm.name")


def _base() -> Any:
    return _built_in("fedsol.algorithms.base:Algorithm")


def make_algorithm(table: Mapping[str, Any]) -> Any:
    """Return the algorithm that an `[algorithm]` table describes."""
    settings = dict(table)
    cls = find_algorithm(settings.pop("name", DEFAULT_ALGORITHM))
    checker = _checker(cls)
    try:
        return cls(**checker(**settings).model_dump())
    except ValidationError as error:
        raise input_error(error, "algorithm", {"algorithm": ["name", *checker.model_fields]}) from error
    except ValueError as error:
        field, _, _ = str(error).partition(":")
        raise InputError(f"algorithm{'.' if field in checker.model_fields else ': '}{error}") from error


@functools.cache
def _checker(cls: type) -> type[BaseModel]:
    """Return the table that checks an algorithm's settings; it is cached, as building it is slow."""
    if hasattr(cls, "federates"):
        raise InputError(f"{cls.__name__}.federates: is not used; return method 'local-only' from personal_settings()")
    hints = get_type_hints(cls, include_extras=True)
    fields = {field.name: (hints[field.name], field) for field in dataclasses.fields(cls)}
    checker: type[BaseModel] = create_model(cls.__name__, __base__=Settings, **fields)  # type: ignore[call-overload]
    return checker


def complete_table(table: Any) -> dict[str, Any]:
    """Return an `[algorithm]` table (or an algorithm itself) with every setting spelled out and checked."""
    if isinstance(table, _base()):
        return {"name": name_of(type(table)), **dataclasses.asdict(table)}
    if not isinstance(table, Mapping):
        raise InputError(f"algorithm: must be a table with a name (got {table!r})")
    name = table.get("name", DEFAULT_ALGORITHM)
    if is_taken_as_it_is(name):
        return dict(table)
    if not isinstance(name, str):
        raise InputError(f"algorithm.name: must be a string (got {name!r})")
    return {"name": name, **dataclasses.asdict(make_algorithm(table))}


def name_of(cls: type) -> str:
    """Return the registered name of an algorithm's class, or the `module:Class` by which it can be imported."""
    reference = f"{cls.__module__}:{cls.__qualname__}"
    return next((name for name, known in ALGORITHMS.items() if known in (cls, reference)), reference)
