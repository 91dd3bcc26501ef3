"""The registry of algorithms: one row each, and any class of a user's by `module:Class`."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import BaseModel, Field, ValidationError, create_model

from fedsol.algorithms.ablation import FedSOLAblation
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.fedavg import FedAvg
from fedsol.algorithms.fedbabu import FedBABU
from fedsol.algorithms.feddyn import FedDyn
from fedsol.algorithms.fednova import FedNova
from fedsol.algorithms.fedntd import FedNTD
from fedsol.algorithms.fedprox import FedProx
from fedsol.algorithms.fedsam import FedASAM, FedSAM
from fedsol.algorithms.fedsol import FedSOL
from fedsol.algorithms.knn_per import KNNPer
from fedsol.algorithms.local_only import LocalOnly
from fedsol.algorithms.moon import MOON
from fedsol.algorithms.perfedavg import PerFedAvg
from fedsol.algorithms.scaffold import Scaffold
from fedsol.config.validation import Table, input_error, unknown_name
from fedsol.core.imports import import_object
from fedsol.errors import InputError

DEFAULT = "fedsol"

ALGORITHMS: dict[str, type[Algorithm]] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fednova": FedNova,
    "scaffold": Scaffold,
    "fedntd": FedNTD,
    "fedsam": FedSAM,
    "fedasam": FedASAM,
    "feddyn": FedDyn,
    "moon": MOON,
    "fedsol": FedSOL,
    "fedsol-ablation": FedSOLAblation,
    "local-only": LocalOnly,
    "perfedavg": PerFedAvg,
    "fedbabu": FedBABU,
    "knn-per": KNNPer,
}


def register(name: str) -> Callable[[type[Algorithm]], type[Algorithm]]:
    """Class decorator that makes an algorithm known by a name in this process: `@fedsol.register("mine")`.

    An experiment that runs in several processes names it `module:Class` instead, which each of them can import.
    """

    def add_row(algorithm: type[Algorithm]) -> type[Algorithm]:
        if ALGORITHMS.setdefault(name, algorithm) is not algorithm:
            raise InputError(f"register: {name!r} is the name of another algorithm already")
        return algorithm

    return add_row


def find_algorithm(name: str) -> type[Algorithm]:
    """The class of a registered name or of `module:Class`."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if ":" not in name:
        raise unknown_name("algorithm.name", name, ALGORITHMS)
    found = import_object(name, "algorithm.name")
    if not (isinstance(found, type) and issubclass(found, Algorithm) and "__dataclass_params__" in vars(found)):
        raise InputError(f"algorithm.name: {name!r} is not a @dataclass(frozen=True) derived from fedsol.Algorithm")
    return found


def make_algorithm(table: Mapping[str, Any]) -> Algorithm:
    """The algorithm that an `[algorithm]` table describes."""
    settings = dict(table)
    cls = find_algorithm(settings.pop("name", DEFAULT))
    checker = _checker(cls)  # type: ignore[arg-type]  # mypy takes the hash of the instances for that of the class
    try:
        checked = checker(**settings).model_dump()
        return cls(**checked)
    except ValidationError as error:
        raise input_error(error, "algorithm", {"algorithm": ["name", *checker.model_fields]}) from error
    except ValueError as error:
        raise InputError(f"algorithm: {error}") from error


@functools.cache
def _checker(cls: type[Algorithm]) -> type[BaseModel]:
    """What checks the settings of an algorithm; making it takes longer than using it."""
    hints = get_type_hints(cls, include_extras=True)
    fields = {field.name: (hints[field.name], _default(field)) for field in dataclasses.fields(cls)}
    checker: type[BaseModel] = create_model(cls.__name__, __base__=Table, **fields)  # type: ignore[call-overload]
    return checker


def _default(field: "dataclasses.Field[Any]") -> Any:
    """A field's default as pydantic wants it."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return ... if field.default_factory is dataclasses.MISSING else Field(default_factory=field.default_factory)


def complete_table(table: Any) -> dict[str, Any]:
    """An `[algorithm]` table (or an algorithm itself) with every setting spelled out and checked."""
    if isinstance(table, Algorithm):
        return {"name": name_of(type(table)), **dataclasses.asdict(table)}
    if not isinstance(table, Mapping):
        raise InputError(f"algorithm: {table!r} is not allowed: must be a table with a name")
    name = table.get("name", DEFAULT)
    if not isinstance(name, str):
        raise InputError(f"algorithm.name: {name!r} is not allowed: must be a string")
    return {"name": name, **dataclasses.asdict(make_algorithm(table))}


def name_of(cls: type[Algorithm]) -> str:
    """The registered name of an algorithm's class, or the `module:Class` by which it can be imported."""
    names = [name for name, known in ALGORITHMS.items() if known is cls]
    return names[0] if names else f"{cls.__module__}:{cls.__qualname__}"
