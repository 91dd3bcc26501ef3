"""Types for settings: a bound is part of the type, a help text part of the field.

Algorithms describe their settings with these and need no validation library of their own.
"""

import dataclasses
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le

NonNegative = Annotated[float, Ge(0)]
Positive = Annotated[float, Gt(0)]
Share = Annotated[float, Ge(0), Le(1)]
PositiveShare = Annotated[float, Gt(0), Le(1)]
Count = Annotated[int, Ge(1)]
Number = Annotated[int, Ge(0)]


def setting(default: Any, description: str) -> Any:
    """A field of a frozen dataclass with the line that `fedsol list` and the reference page show for it."""
    return dataclasses.field(default=default, metadata={"help": description})
