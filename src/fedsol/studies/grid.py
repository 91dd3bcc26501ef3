"""Grids: `KEY=V1,V2,…` is a list of values, `KEY=LOW..HIGH` a range to search in."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.config.overrides import as_text, parse_override, split_list
from fedsol.errors import InputError
from fedsol.studies.variants import Variant, check_distinct

_RANGE = re.compile(r"^(log:)?([^.\s]*(?:\.\d+)?(?:e[+-]?\d+)?)\.\.(.+)$")


@dataclass(frozen=True)
class Choice:
    """A key and its values."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """A key and the interval to search in: whole numbers if both ends are."""

    key: str
    low: float
    high: float
    log: bool = False


Axis = Choice | Range


def parse_grid(texts: Sequence[str]) -> list[Axis]:
    """Return the axes that `--grid` names, each key once."""
    axes = [_axis(text) for text in texts]
    for number, axis in enumerate(axes):
        if axis.key in [other.key for other in axes[:number]]:
            raise InputError(f"--grid: {axis.key} must be given only once")
        if axis.key == "seed":
            raise InputError("--grid: seed is not allowed; use --seeds 0,1,2")
    if not axes:
        raise InputError("--grid: is missing; for example --grid algorithm.rho=0.5,1,2")
    return axes


def _axis(text: str) -> Axis:
    key, separator, values = (part.strip() for part in text.partition("="))
    if not separator or not key or not values:
        raise InputError(f"--grid {text!r}: must be key=value,value,… or key=low..high")
    if (match := _RANGE.match(values)) and match[2]:  # `../data` is a path
        return _range(key, bool(match[1]), match[2], match[3], text)
    found = tuple(parse_override(f"{key}={part}")[1] for part in split_list(values))
    if len(set(map(repr, found))) < len(found) or not found:
        raise InputError(f"--grid {text!r}: must have one value or more, all different")
    return Choice(key, found)


def _range(key: str, log: bool, low: str, high: str, text: str) -> Range:
    ends = [parse_override(f"{key}={end}")[1] for end in (low, high)]
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends) or not ends[0] < ends[1]:
        raise InputError(f"--grid {text!r}: the ends of a range must be numbers, the lower one first")
    if log and ends[0] <= 0:
        raise InputError(f"--grid {text!r}: a range on a log scale must be greater than 0")
    return Range(key, ends[0], ends[1], log)


def grid_variants(axes: Sequence[Axis], base: Experiment) -> list[Variant]:
    """Return every point of the grid as an experiment. A bad key or value is an error before anything runs."""
    choices = [axis for axis in axes if isinstance(axis, Choice)]
    if ranges := [axis.key for axis in axes if isinstance(axis, Range)]:
        raise InputError(f"--grid: {ranges[0]} is a range, which requires --search N; without it, list values")
    keys = [choice.key for choice in choices]
    points = itertools.product(*(choice.values for choice in choices))
    variants = [variant_at(dict(zip(keys, point, strict=True)), base) for point in points]
    check_distinct("--grid", variants)
    return variants


def variant_at(settings: Mapping[str, Any], base: Experiment) -> Variant:
    """Return the experiment at a point of the grid, labeled by its settings."""
    label = " ".join(f"{key}={value_text(value)}" for key, value in settings.items())
    return Variant(label, base.override(settings))


def value_text(value: Any) -> str:
    """Return a value as labels and tables show it."""
    return f"{value:.6g}" if isinstance(value, float) else as_text(value)
