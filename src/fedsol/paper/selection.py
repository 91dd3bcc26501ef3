"""`--only 'dataset=cifar10,alpha=0.1,method=fedavg|fedsol'`: some cells of a recipe."""

import shlex
from collections.abc import Sequence

from fedsol.config.tables import suggestion
from fedsol.errors import InputError
from fedsol.paper.recipe import Cell


def select(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """The cells that agree with every condition, which may be given in several parts: `method=fedavg`, `method=fedsol`.

    Extra cells only where a condition names them by method.
    """
    wanted = _conditions(cells, only)
    return [
        cell
        for cell in cells
        if all(_is_one_of(cell.facts.get(key), values) for key, values in wanted.items())
        and (not cell.extra or _is_one_of(cell.facts["method"], wanted.get("method", [])))
    ]


def option(key: str, values: Sequence[str]) -> str:
    """The option that chooses these values, as a shell takes it."""
    return f"--only {shlex.quote(key + '=' + '|'.join(values))}"


def _conditions(cells: Sequence[Cell], only: Sequence[str]) -> dict[str, list[str]]:
    known: dict[str, list[str]] = {}
    for cell in cells:
        for key, value in cell.facts.items():
            if value not in known.setdefault(key, []):
                known[key].append(value)
    wanted: dict[str, list[str]] = {}
    for part in (part.strip() for text in only for part in text.split(",")):
        key, separator, values = part.partition("=")
        if not separator:
            raise InputError(
                f"--only: {part!r} is not allowed: must be KEY=VALUE, several values as in 'dataset=cifar10|mnist'"
            )
        if key not in known:
            raise InputError(f"--only: {key!r} is nothing to choose by here; {suggestion(key, known)}")
        for value in (value.strip() for value in values.split("|")):
            if not any(_same(value, other) for other in known[key]):
                raise InputError(f"--only: {key}={value} is not in this table; {suggestion(value, known[key])}")
            wanted.setdefault(key, []).append(value)
    return wanted


def _is_one_of(value: str | None, wanted: Sequence[str]) -> bool:
    return value is not None and any(_same(value, other) for other in wanted)


def _same(one: str, other: str) -> bool:
    """Words or numbers: 0.10 is 0.1."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one.lower() == other.lower()
