"""What there is to choose from, as plain rows: `fedsol list`."""

import dataclasses
import tomllib
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path
from typing import Any, get_args, get_type_hints

from fedsol.config.validation import suggestion
from fedsol.errors import InputError

Rows = list[dict[str, Any]]


def algorithms() -> Rows:
    """Every registered algorithm with its settings."""
    from fedsol.algorithms import ALGORITHMS

    return [
        {"name": name, "description": _first_line(cls.__doc__), "settings": settings_of(cls)}
        for name, cls in ALGORITHMS.items()
    ]


def settings_of(cls: type) -> Rows:
    """The settings of an algorithm: name, default, what is allowed, and the line of help."""
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
    """A type with its bounds in a few words: `number >= 0`, `all | body | head`."""
    if hasattr(hint, "__metadata__"):
        return f"{describe_type(hint.__origin__)} {describe_bounds(hint.__metadata__)}".strip()
    names: dict[Any, str] = {float: "number", int: "whole number", bool: "true | false", str: "text"}
    return names.get(hint) or " | ".join(str(value) for value in get_args(hint))


def describe_bounds(metadata: Iterable[Any]) -> str:
    """The bounds among the metadata of a type: `> 0, <= 1`."""
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    return ", ".join(
        f"{sign} {getattr(bound, name):g}"
        for bound in metadata
        for name, sign in signs.items()
        if getattr(bound, name, None) is not None
    )


def datasets() -> Rows:
    """Every dataset with its sizes and the paper's federation."""
    from fedsol.data.catalog import SPECS

    return [
        {
            "name": spec.name,
            "description": spec.title,
            "train": spec.train_size,
            "test": spec.test_size,
            "classes": spec.classes,
            "clients": spec.clients,
            "fraction": spec.fraction,
            "rounds": spec.rounds,
        }
        for spec in SPECS.values()
    ]


def models() -> Rows:
    """Every model with its options."""
    from fedsol.models import MODELS

    return [
        {
            "name": spec.name,
            "description": spec.description,
            "options": {name: option.description for name, option in spec.options.items()},
        }
        for spec in MODELS.values()
    ]


def partitions() -> Rows:
    """Every way to deal the data out."""
    return [
        {"name": "iid", "description": "every client a random part of equal size"},
        {
            "name": "sharding",
            "description": "sorted by label, `shards` pieces per client (balance = size or class)",
        },
        {
            "name": "dirichlet",
            "description": "per class, Dirichlet(`alpha`) shares over the clients (cap, min_size)",
        },
        {"name": "file", "description": "read from `file`: a partition manifest or lists of indices"},
        {"name": "own", "description": "the client ids that the data brings itself"},
    ]


def experiments() -> Rows:
    """The experiment files that come with fedsol; `fedsol run NAME` runs one."""
    rows = []
    for file in sorted(resources.files("fedsol").joinpath("experiments").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            text = file.read_text(encoding="utf-8")
            rows.append({"name": file.name.removesuffix(".toml"), "description": text.splitlines()[0].lstrip("# ")})
    return rows


LISTS: dict[str, Callable[[], Rows]] = {
    "algorithms": algorithms,
    "datasets": datasets,
    "models": models,
    "partitions": partitions,
    "experiments": experiments,
}


def find_experiment(name: str) -> dict[str, Any]:
    """The tables of an experiment: a file's path, or the name of one that comes with fedsol."""
    from fedsol.config.experiment import read_toml

    if name.endswith(".toml") or Path(name).is_file():
        return read_toml(Path(name))
    known = [row["name"] for row in experiments()]
    if name not in known:
        raise InputError(f"{name}: there is no such file, and no experiment of that name; {suggestion(name, known)}")
    file = resources.files("fedsol").joinpath("experiments", f"{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0] if text else ""
