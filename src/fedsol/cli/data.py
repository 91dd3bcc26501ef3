"""`fedsol data fetch` and `fedsol data verify`."""

from pathlib import Path
from typing import Annotated

import typer

from fedsol.cli.console import say
from fedsol.errors import InputError

NameArgument = Annotated[str, typer.Argument(help="A name from `fedsol list datasets`.")]
RootOption = Annotated[Path, typer.Option("--root", help="Folder that holds the datasets.")]


def fetch(name: NameArgument, root: RootOption = Path("data")) -> None:
    """Download a dataset from its publisher and verify it."""
    from fedsol.data import catalog

    _check_name(name)
    found = catalog.fetch(name, root)
    say(f"{name} is complete in {root / name}." if found else _no_files(name))


def verify(name: NameArgument, root: RootOption = Path("data")) -> None:
    """Check the files of a dataset against the publisher's checksums."""
    from fedsol.data import catalog

    _check_name(name)
    results = catalog.verify(name, root)
    for result in results:
        say(f"{result.status:8} {result.path}  {result.detail}")
    if not results:
        say(_no_files(name))
    if any(result.status != "ok" for result in results):
        remedy = catalog.SPECS[name].by_hand or f"run: fedsol data fetch {name} --root {root}"
        raise InputError(f"{root / name}: files of {name} are missing or wrong; {remedy}")


def _check_name(name: str) -> None:
    from fedsol.config.tables import unknown_name
    from fedsol.data.catalog import SPECS

    if name not in SPECS:
        raise unknown_name("dataset", name, SPECS)


def _no_files(name: str) -> str:
    return f"{name} comes with fedsol and needs no files."
