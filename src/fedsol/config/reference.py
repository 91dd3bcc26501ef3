"""Every key of an experiment file in words, taken from the tables themselves."""

import json
from collections.abc import Iterator
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedsol.config.experiment import TABLES
from fedsol.config.fields import describe_bounds, describe_type
from fedsol.config.tables import Settings


def settings_in(table: type[Settings]) -> list[dict[str, Any]]:
    """Return the keys of a table that are no tables themselves: name, default, what is allowed, the line of help."""
    return [
        {
            "name": name,
            "default": field.get_default(call_default_factory=True),
            "allowed": _allowed(field),
            "help": field.description or "",
        }
        for name, field in table.model_fields.items()
        if name != "algorithm" and not _is_table(field)
    ]


def all_settings() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every table's dotted name and each of its keys; the top level has the name ''."""
    for name, table in TABLES.items():
        yield from ((name, row) for row in settings_in(table))


def _is_table(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _allowed(field: FieldInfo) -> str:
    """Return the type of a field in words, without the None that stands for "not given"."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
    is_optional = NoneType in get_args(field.annotation)
    if is_optional and len(kinds) > 1:
        return " | ".join(map(describe_type, kinds))
    hint = kinds[0] if is_optional else field.annotation
    if getattr(hint, "__origin__", None) is dict:
        return "table"
    return f"{describe_type(hint)} {describe_bounds(field.metadata)}".strip()


def toml_value(value: Any) -> str:
    """Return a default as an experiment file writes it: of plain values and lists, JSON and TOML are the same."""
    return json.dumps(value, ensure_ascii=False)
