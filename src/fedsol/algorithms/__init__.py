"""The algorithms, one file per method; `config.catalog` has a row for each, and a user's own is `module:Class`."""

from collections.abc import Callable, Mapping
from typing import Any

from fedsol.algorithms.base import Algorithm
from fedsol.config import algorithm
from fedsol.config.catalog import ALGORITHMS
from fedsol.errors import InputError

find_algorithm: Callable[[str], type[Algorithm]] = algorithm.find_algorithm
make_algorithm: Callable[[Mapping[str, Any]], Algorithm] = algorithm.make_algorithm


def register(name: str) -> Callable[[type[Algorithm]], type[Algorithm]]:
    """Register an algorithm under a name in this process, as a class decorator: `@fedsol.register("mine")`.

    An experiment that runs in several processes names it `module:Class` instead, which each of them can import.
    """

    def add_row(cls: type[Algorithm]) -> type[Algorithm]:
        if ALGORITHMS.setdefault(name, cls) is not cls:
            raise InputError(f"register: {name!r} is already the name of another algorithm")
        return cls

    return add_row
