"""What there is to choose from, as plain rows: `fedsol list`."""

from collections.abc import Callable
from typing import Any

from fedsol.config.catalog import ALGORITHMS, EXPERIMENTS
from fedsol.config.fields import settings_of

Rows = list[dict[str, Any]]


def algorithms() -> Rows:
    """Every registered algorithm with its settings."""
    from fedsol.algorithms import find_algorithm

    classes = {name: find_algorithm(name) for name in ALGORITHMS}
    return [
        {"name": name, "description": _first_line(cls.__doc__), "settings": settings_of(cls)}
        for name, cls in classes.items()
    ]


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
    """Return the experiments that come with fedsol; `fedsol run NAME` runs one."""
    return [{"name": name, "description": ready.description} for name, ready in EXPERIMENTS.items()]


LISTS: dict[str, Callable[[], Rows]] = {
    "algorithms": algorithms,
    "datasets": datasets,
    "models": models,
    "partitions": partitions,
    "experiments": experiments,
}


def _first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0] if text else ""
