"""`fedsol list`: algorithms, datasets, models, partitions and experiments by name."""

import json
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from fedsol.cli.console import console, say, say_table
from fedsol.cli.options import JsonOption
from fedsol.config.catalog import EXPERIMENTS, Rows, listing

NOTES = """
FedAvgM, FedAdam and FedYogi are server optimizers, which combine with every algorithm:
--set server.optimizer=momentum, adam or yogi (in a comparison also: -a fedavgm,fedadam,fedyogi).
Your own algorithm: --set algorithm.name=module:Class"""


def list_names(
    what: Annotated[str, typer.Argument(help="algorithms, datasets, models, partitions or experiments.")],
    as_json: JsonOption = False,
) -> None:
    """Show the names that an experiment can use."""
    from fedsol.config.tables import unknown_name

    if what not in LISTS:
        raise unknown_name("list", what, LISTS)
    rows = LISTS[what]()
    if as_json:
        print(json.dumps(rows, indent=2))
    elif what == "algorithms":
        _say_algorithms(rows)
    else:
        say_table(list(rows[0]), [list(map(_text, row.values())) for row in rows], what, text_columns=len(rows[0]))


def _say_algorithms(rows: Rows) -> None:
    """Print every algorithm with its defaults, then each setting once, however many algorithms share it."""
    from fedsol.config.overrides import as_text

    meanings: dict[str, str] = {}
    for row in rows:
        console.print(row["name"], style="bold", end="  ")
        say(row["description"])
        if row["settings"]:
            defaults = (f"{item['name']} = {as_text(item['default'])}" for item in row["settings"])
            console.print(f"    {'  '.join(defaults)}", style="dim")
        for item in row["settings"]:
            key = f"{item['name']}: {item['help']}"
            meanings.setdefault(key, f"  {item['name']} ({item['allowed']}): {item['help']}")
    console.print("\nSettings", style="bold")
    say("\n".join(sorted(meanings.values())))
    say(NOTES)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{key}: {text}" for key, text in value.items())
    return "" if value is None else str(value)


def partitions() -> Rows:
    """Return every way to split the data among clients."""
    return [
        {"name": "iid", "description": "a random part of equal size for every client"},
        {"name": "sharding", "description": "sorted by label, `shards` pieces per client (balance = size or class)"},
        {"name": "dirichlet", "description": "per class, Dirichlet(`alpha`) shares over the clients (cap, min_size)"},
        {"name": "file", "description": "read from `file`: a partition manifest or lists of indices"},
        {"name": "own", "description": "the client ids that come with the data"},
    ]


def experiments() -> Rows:
    """Return the experiments that come with fedsol; `fedsol run NAME` runs one."""
    return [{"name": name, "description": ready.description} for name, ready in EXPERIMENTS.items()]


LISTS: dict[str, Callable[[], Rows]] = {
    "algorithms": partial(listing, "algorithms"),
    "datasets": partial(listing, "datasets"),
    "models": partial(listing, "models"),
    "partitions": partitions,
    "experiments": experiments,
}
