"""The algorithms, one file per method; `config.catalog` has a row for each, and a user's own is `module:Class`."""

from collections.abc import Callable, Mapping
from typing import Any

from fedsol.algorithms.base import Algorithm
from fedsol.config import algorithm
from fedsol.config.catalog import ALGORITHMS
from fedsol.errors import InputError


def register(name: str) -> Callable[[type[Algorithm]], type[Algorithm]]:
    """Make an algorithm known by a name in this process, as a class decorator: `@fedsol.register("mine")`.

    An experiment that runs in several processes names it `module:Class` instead, which each of them can import.
    """

    def add_row(cls: type[Algorithm]) -> type[Algorithm]:
        if ALGORITHMS.setdefault(name, cls) is not cls:
            raise InputError(f"register: {name!r} is already the name of another algorithm")
        return cls

    return add_row


def find_algorithm(name: str) -> type[Algorithm]:
    """Return the class of a registered name or of `module:Class`."""
    cls: type[Algorithm] = algorithm.find_algorithm(name)
    return cls


def make_algorithm(table: Mapping[str, Any]) -> Algorithm:
    """Return the algorithm that an `[algorithm]` table describes."""
    made: Algorithm = algorithm.make_algorithm(table)
    return made
