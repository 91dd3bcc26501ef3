"""Settings are checked here, and a failed check becomes one message: the field, the value and what is allowed."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from fedsol.errors import InputError


class Table(BaseModel):
    """A table of settings: unknown keys and wrong types are errors, nothing is converted silently."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)


def suggestion(word: str, known: Iterable[str]) -> str:
    """`Did you mean 'rho'? Allowed: …` for a word that is not among the known ones."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}Allowed: {', '.join(names)}"


def unknown_name(field: str, value: str, known: Iterable[str]) -> InputError:
    """The error for a name that no registry knows."""
    return InputError(f"{field}: {value!r} is not known; {suggestion(value, known)}")


def input_error(error: ValidationError, where: str, allowed_keys: Mapping[str, Iterable[str]]) -> InputError:
    """One `InputError` for everything that pydantic found wrong.

    `where` is put before every field; `allowed_keys` lists the keys of each table (by its dotted path) for suggestions.
    """
    return InputError("\n".join(_describe(details, where, allowed_keys) for details in error.errors()))


def _describe(details: Any, where: str, allowed_keys: Mapping[str, Iterable[str]]) -> str:
    path = [str(part) for part in details["loc"]]
    field = ".".join([where, *path] if where else path)
    if details["type"] == "extra_forbidden" or details["type"] == "unexpected_keyword_argument":
        table = ".".join([where, *path[:-1]] if where else path[:-1])
        return f"{field}: unknown key; {suggestion(path[-1], allowed_keys.get(table, ()))}"
    if details["type"] == "missing":
        return f"{field}: is missing"
    if details["type"] in ("value_error", "assertion_error"):
        reason = str(details["ctx"]["error"])
        return f"{field}: {reason}" if field else reason
    message = details["msg"].replace("Input should be ", "must be ").replace("Input should", "should")
    return f"{field}: {details['input']!r} is not allowed: {message}"
