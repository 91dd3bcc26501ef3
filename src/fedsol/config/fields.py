"""Types for settings: a bound is part of the type, a help text part of the field.

Algorithms describe their settings with these and need no validation library of their own.
"""

import dataclasses
from collections.abc import Iterable
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le

NonNegative = Annotated[float, Ge(0)]
Positive = Annotated[float, Gt(0)]
Share = Annotated[float, Ge(0), Le(1)]
PositiveShare = Annotated[float, Gt(0), Le(1)]
LARGEST_COUNT = 1_000_000_000
"""Far beyond every real federation, and far below the integers that torch and numpy cannot hold."""
Count = Annotated[int, Ge(1), Le(LARGEST_COUNT)]
Number = Annotated[int, Ge(0), Le(LARGEST_COUNT)]
LARGEST_SIDE = 16_384
Pixels = Annotated[int, Ge(0), Le(LARGEST_SIDE)]
Side = Annotated[int, Ge(1), Le(LARGEST_SIDE)]
Seed = Annotated[int, Ge(0), Le(2**63 - 1)]


def setting(default: Any, description: str) -> Any:
    """Return a field of a frozen dataclass, with the line that `fedsol list` and the reference page show for it."""
    return dataclasses.field(default=default, metadata={"help": description})


def settings_of(cls: type) -> list[dict[str, Any]]:
    """Return the settings of an algorithm: name, default, what is allowed, and the line of help."""
    hints = get_type_hints(cls, include_extras=True)
    return [
        {
            "name": field.name,
            "default": None if field.default is dataclasses.MISSING else field.default,
            "allowed": describe_type(hints[field.name]),
            "help": field.metadata.get("help", ""),
        }
        for field in dataclasses.fields(cls)
    ]


def describe_type(hint: Any) -> str:
    """Return a type with its bounds in a few words: `number >= 0`, `list of text`, `all | body | head`."""
    if hasattr(hint, "__metadata__"):
        return f"{describe_type(hint.__origin__)} {describe_bounds(hint.__metadata__)}".strip()
    if get_origin(hint) is list:
        return f"list of {describe_type(get_args(hint)[0]).replace('number', 'numbers', 1)}"
    if get_origin(hint) in (Union, UnionType):
        return " | ".join(describe_type(part) for part in get_args(hint) if part is not type(None))
    names: dict[Any, str] = {float: "number", int: "whole number", bool: "true | false", str: "text"}
    return names.get(hint) or " | ".join(str(value) for value in get_args(hint))


def describe_bounds(metadata: Iterable[Any]) -> str:
    """Return the bounds among the metadata of a type: `> 0, <= 1`. Pydantic's `Field` nests its own list.

    The largest count and seed are left out: they only refuse what no machine could hold.
    """
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    bounds = [bound for item in metadata for bound in getattr(item, "metadata", [item])]
    return ", ".join(
        f"{sign} {getattr(bound, name):g}"
        for bound in bounds
        for name, sign in signs.items()
        if getattr(bound, name, None) not in (None, LARGEST_COUNT, 2**63 - 1)
    )
