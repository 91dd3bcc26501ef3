"""What a sweep goes through: `KEY=V1,V2,…` is a list of values, `KEY=LOW..HIGH` a range to search in."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.config.overrides import parse_override
from fedsol.errors import InputError
from fedsol.studies.variants import Variant

_RANGE = re.compile(r"^(log:)?([^.\s]*(?:\.\d+)?(?:e[+-]?\d+)?)\.\.(.+)$")


@dataclass(frozen=True)
class Choice:
    """A key and the values that it is given."""

    key: str
    values: tuple[Any, ...]

    @property
    def numeric(self) -> bool:
        """Whether all values are numbers."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)


@dataclass(frozen=True)
class Range:
    """A key and the interval that its value is searched in: whole numbers if both ends are."""

    key: str
    low: float
    high: float
    log: bool = False


Axis = Choice | Range


def parse_grid(texts: Sequence[str]) -> list[Axis]:
    """The axes that `--grid` names, each key once."""
    axes = [_axis(text) for text in texts]
    for number, axis in enumerate(axes):
        if axis.key in [other.key for other in axes[:number]]:
            raise InputError(f"--grid: {axis.key} is given twice")
        if axis.key == "seed":
            raise InputError("--grid: seed is not allowed here; use --seeds 0,1,2")
    if not axes:
        raise InputError("--grid: is missing; for example --grid algorithm.rho=0.5,1,2")
    return axes


def _axis(text: str) -> Axis:
    key, separator, values = (part.strip() for part in text.partition("="))
    if not separator or not key or not values:
        raise InputError(f"--grid {text!r}: must be key=value,value,… or key=low..high")
    if (match := _RANGE.match(values)) and match[2]:  # `../data` is a path
        return _range(key, bool(match[1]), match[2], match[3], text)
    found = tuple(parse_override(f"{key}={part}")[1] for part in values.split(",") if part.strip())
    if len(set(map(repr, found))) < len(found) or not found:
        raise InputError(f"--grid {text!r}: has a value twice, or none")
    return Choice(key, found)


def _range(key: str, log: bool, low: str, high: str, text: str) -> Range:
    ends = [parse_override(f"{key}={end}")[1] for end in (low, high)]
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends) or not ends[0] < ends[1]:
        raise InputError(f"--grid {text!r}: the ends of a range must be numbers, the lower one first")
    if log and ends[0] <= 0:
        raise InputError(f"--grid {text!r}: a range on a log scale must be above 0")
    return Range(key, ends[0], ends[1], log)


def grid_variants(axes: Sequence[Axis], base: Experiment) -> list[Variant]:
    """The product of all lists of values, as experiments; a bad key or value is an error before anything runs."""
    choices = [axis for axis in axes if isinstance(axis, Choice)]
    if len(choices) < len(axes):
        key = next(axis.key for axis in axes if isinstance(axis, Range))
        raise InputError(f"--grid: {key} is a range, which needs --search N; allowed without: lists of values")
    points = itertools.product(*(choice.values for choice in choices))
    return [variant_at(dict(zip([choice.key for choice in choices], point, strict=True)), base) for point in points]


def variant_at(settings: Mapping[str, Any], base: Experiment) -> Variant:
    """The experiment at a point of the grid, named by what was set."""
    label = " ".join(f"{key}={_short(value)}" for key, value in settings.items())
    return Variant(label, base.override(settings))


def _short(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:.6g}" if isinstance(value, float) else str(value)
