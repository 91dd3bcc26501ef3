"""`fedsol init`: a commented experiment file to start from."""

import functools
import operator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsol.cli.console import say, show_warnings
from fedsol.cli.options import SetOption, read_experiment
from fedsol.errors import InputError

if TYPE_CHECKING:
    from fedsol.config.experiment import Experiment
    from fedsol.data.types import Dataset

SHOWN: dict[str, tuple[str, ...]] = {
    "": ("seed", "rounds"),
    "data": ("name", "target", "client", "features", "missing", "test", "test_fraction", "image_size", "validation"),
    "data.partition": ("kind", "clients", "alpha", "shards", "held_out"),
    "task": ("kind", "metrics", "class_weights"),
    "model": ("name",),
    "algorithm": ("name",),
    "client": ("epochs", "batch_size", "lr", "momentum", "weight_decay", "clip_norm"),
    "server": ("fraction", "lr_decay", "patience"),
    "engine": ("kind", "workers", "device"),
}
"""The keys that most people change first."""
OF_OWN_DATA = ("tables:", "image folders:", "your own data")
"""How the help of a key begins that a dataset of fedsol's does not need."""


def init(
    file: Annotated[Path, typer.Argument(help="The experiment file to write.")],
    data: Annotated[
        str | None, typer.Option("--data", help="Name of a dataset, or your own table, .npz file or image folder.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="Tables: the column to predict.")] = None,
    client: Annotated[str | None, typer.Option("--client", help="Tables: the column with the client.")] = None,
    changes: SetOption = None,
) -> None:
    """Write a commented experiment file, for a dataset (default: the quick start's) or your own data."""
    from fedsol.core.files import write_output
    from fedsol.core.paths import user_path
    from fedsol.data.catalog import SPECS, load_dataset

    show_warnings()
    if file.exists():
        raise InputError(f"{file}: already exists; choose another name")
    given = {"data.name": data, "data.target": target, "data.client": client}
    named = {key: value for key, value in given.items() if value is not None}
    is_own = data is not None and data not in SPECS
    if is_own and not any(change.startswith(("data.test=", "data.test_fraction=")) for change in changes or ()):
        named |= _test_share(user_path(str(data)))
    experiment = _blank(changes, named) if data is not None else read_experiment(None, changes, named)
    dataset = load_dataset(experiment.data, experiment.task.kind) if is_own else None
    experiment = _resolved(experiment, dataset)
    write_output(file, experiment_text(experiment, file))
    if dataset is not None:
        say(_summary(dataset))
    say(f"Wrote {file}. Edit it, then: fedsol run {file}")


def _blank(changes: list[str] | None, named: dict[str, Any]) -> "Experiment":
    """Return an experiment that has only these keys: the quick start's are for its data."""
    from fedsol.config.experiment import Experiment
    from fedsol.config.overrides import apply_overrides, parse_override

    return Experiment(**apply_overrides({}, {**dict(map(parse_override, changes or ())), **named}))


def experiment_text(experiment: "Experiment", file: Path) -> str:
    """Return the file: a comment above each key; keys that have their default value are commented out."""
    from fedsol.config.experiment import TABLES
    from fedsol.config.reference import settings_in, toml_value
    from fedsol.data.catalog import SPECS

    tables = experiment.model_dump()
    is_named = experiment.data.name in SPECS
    lines = [
        f"# An experiment for fedsol. Run it: fedsol run {file}",
        "# A line such as #lr = 0.01 is a default. Every key: fedsol list settings",
    ]
    for table, names in SHOWN.items():
        lines += ["", f"[{table}]"] if table else [""]
        values = functools.reduce(operator.getitem, table.split("."), tables) if table else tables
        rows = _algorithm_rows(values["name"]) if table == "algorithm" else settings_in(TABLES[table])
        for row in rows:
            value = values[row["name"]]
            is_of_own_data = value == row["default"] and row["help"].startswith(OF_OWN_DATA)
            if (table != "algorithm" and row["name"] not in names) or (is_named and is_of_own_data):
                continue
            lines.append(f"# {row['help']}; {row['allowed']}")
            is_default = value == row["default"] and f"{table}.{row['name']}" not in ("data.name", ".seed")
            shown = "…" if value is None else toml_value(value)
            lines.append(f"{'#' if is_default else ''}{row['name']} = {shown}")
    return "\n".join(lines) + "\n"


def _algorithm_rows(algorithm: str) -> list[dict[str, Any]]:
    from fedsol.algorithms import find_algorithm
    from fedsol.config.fields import settings_of

    name = {"name": "name", "default": None, "allowed": "see: fedsol list algorithms", "help": "the method"}
    return [name, *settings_of(find_algorithm(algorithm))]


def _test_share(path: Path) -> dict[str, Any]:
    """Return the share of the samples to test on, for a table and for a folder or file without a test set."""
    from fedsol.data.frames import is_table

    has_none = is_table(path) or (path.is_dir() and not (path / "test").is_dir())
    return {"data.test_fraction": 0.2} if has_none else {}


def _resolved(experiment: "Experiment", dataset: "Dataset | None") -> "Experiment":
    """Return the experiment with the number of clients, their share and the rounds written out."""
    from fedsol.federation.federation import fill_defaults, fill_sizes

    return fill_sizes(experiment) if dataset is None else fill_defaults(experiment, dataset)


def _summary(dataset: "Dataset") -> str:
    clients = f", {len(dataset.client_names)} clients" if dataset.client_names else ""
    classes = f", {dataset.classes} classes" if dataset.class_names else ""
    return f"{dataset.name}: {len(dataset.train)} training and {len(dataset.test)} test samples{classes}{clients}"
