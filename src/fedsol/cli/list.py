"""`fedsol list`: algorithms, datasets, models, partitions, experiments and settings by name."""

import json
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from fedsol.cli.console import console, say, say_table
from fedsol.cli.options import JsonOption
from fedsol.config.catalog import EXPERIMENTS, Rows, listing
from fedsol.errors import InputError

DESCRIPTIONS = {
    "algorithms": "the methods, each with its own settings",
    "datasets": "data that comes with fedsol or is downloaded",
    "models": "networks and their options",
    "partitions": "ways to split the data among clients",
    "experiments": "ready experiments; `fedsol run NAME` runs one",
    "settings": "every key of an experiment file; `fedsol list settings client` shows one table",
}

NOTES = """
FedAvgM, FedAdam and FedYogi are server optimizers, which combine with every algorithm:
--set server.optimizer=momentum, adam or yogi (in a comparison also: -a fedavgm,fedadam,fedyogi).
Your own algorithm: --set algorithm.name=module:Class"""


def list_names(
    what: Annotated[str | None, typer.Argument(help=f"One of {', '.join(DESCRIPTIONS)}.")] = None,
    table: Annotated[str | None, typer.Argument(help="settings: only this table, such as data.partition.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the names that an experiment can use; without an argument, what can be listed."""
    from fedsol.config.tables import unknown_name

    if what is None:
        rows: Rows = [{"name": name, "description": text} for name, text in DESCRIPTIONS.items()]
    elif what not in LISTS:
        raise unknown_name("list", what, LISTS)
    elif table is not None and what != "settings":
        raise InputError(f"list: a table is only for settings (got {table!r} after {what!r})")
    else:
        rows = settings(table) if what == "settings" else LISTS[what]()
    if as_json:
        print(json.dumps(rows, indent=2))
    elif what is None:
        say("fedsol list WHAT, where WHAT is one of these:\n")
        say("\n".join(f"  {row['name']:<12} {row['description']}" for row in rows))
    elif what == "settings":
        _say_settings(rows)
    elif what == "algorithms":
        _say_algorithms(rows)
    else:
        say_table(list(rows[0]), [list(map(_text, row.values())) for row in rows], what, text_columns=len(rows[0]))


def _say_algorithms(rows: Rows) -> None:
    """Print every algorithm by group with its defaults, then each setting once, however many algorithms share it."""
    from fedsol.config.overrides import as_text

    meanings: dict[str, str] = {}
    for row, before in zip(rows, [None, *rows], strict=False):
        if before is None or row["group"] != before["group"]:
            console.print(f"\n{row['group'].capitalize()}", style="bold underline")
        console.print(row["name"], style="bold", end="  ")
        say(f"{row['year'] or '–'}  {row['description']}")
        if row["settings"]:
            defaults = (f"{item['name']} = {as_text(item['default'])}" for item in row["settings"])
            console.print(f"    {'  '.join(defaults)}", style="dim")
        for item in row["settings"]:
            key = f"{item['name']}: {item['help']}"
            meanings.setdefault(key, f"  {item['name']} ({item['allowed']}): {item['help']}")
    console.print("\nSettings", style="bold")
    say("\n".join(sorted(meanings.values())))
    say(NOTES)


def _say_settings(rows: Rows) -> None:
    """Print the keys of each table, with their defaults as the experiment file writes them."""
    from fedsol.config.reference import toml_value

    table = None
    for row in rows:
        if row["table"] != table:
            table = row["table"]
            console.print(f"\n[{table}]" if table else "Top level", style="bold")
        default = "" if row["default"] is None else f" = {toml_value(row['default'])}"
        console.print(f"  {row['name']}{default}", end="  ")
        console.print(f"({row['allowed']})", style="dim", end="  ")
        say(row["help"])


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
        {
            "name": "dirichlet-client",
            "description": "clients of equal size, each with class proportions of its own: Dirichlet(`alpha`)",
        },
        {"name": "classes", "description": "exactly `classes` classes per client"},
        {"name": "quantity", "description": "random samples; `sizes` log-normal or power-law, by `skew` (min_size)"},
        {"name": "file", "description": "read from `file`: a partition manifest or lists of indices"},
        {"name": "own", "description": "the client ids that come with the data"},
        {"name": "own-grouped", "description": "`clients` random groups of the data's own clients"},
    ]


def experiments() -> Rows:
    """Return the experiments that come with fedsol; `fedsol run NAME` runs one."""
    return [{"name": name, "description": ready.description} for name, ready in EXPERIMENTS.items()]


def settings(table: str | None = None) -> Rows:
    """Return every key of an experiment file, or those of a table and the tables in it."""
    from fedsol.config.experiment import TABLES
    from fedsol.config.reference import all_settings
    from fedsol.config.tables import unknown_name

    if table == "algorithm":
        raise InputError("list settings: each algorithm has its own settings; see: fedsol list algorithms")
    if table is not None and table not in TABLES:
        raise unknown_name("list settings", table, [name for name in TABLES if name])
    return [
        {"table": name, **row} for name, row in all_settings() if table is None or f"{name}.".startswith(f"{table}.")
    ]


LISTS: dict[str, Callable[[], Rows]] = {
    "algorithms": partial(listing, "algorithms"),
    "datasets": partial(listing, "datasets"),
    "models": partial(listing, "models"),
    "partitions": partitions,
    "experiments": experiments,
    "settings": settings,
}
