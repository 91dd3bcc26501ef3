"""Some cells of a recipe (`--only 'dataset=cifar10,alpha=0.1,method=fedavg|fedsol'`), and the data they require."""

import shlex
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from fedsol.config.overrides import split_list
from fedsol.config.tables import suggestion
from fedsol.data.catalog import SPECS
from fedsol.data.files import DatasetFiles, addresses
from fedsol.errors import InputError
from fedsol.paper.recipe import Cell


def select(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """Return the cells that agree with every condition; `--only` is repeatable: `method=fedavg`, `method=fedsol`.

    Extra cells only where a condition names them by method.
    """
    known: dict[str, dict[str, str]] = {}
    for cell in cells:
        for key, value in cell.facts.items():
            known.setdefault(key, {})[_normal(value)] = value
    wanted: dict[str, list[str]] = {}
    for part in (part for text in only for part in split_list(text) or [text]):
        key, separator, values = part.partition("=")
        if not separator:
            raise InputError(
                f"--only: {part!r} is not allowed: must be KEY=VALUE, several values as in 'dataset=cifar10|mnist'"
            )
        if key not in known:
            raise InputError(f"--only: unknown key {key!r}; {suggestion(key, known)}")
        for value in (value.strip() for value in values.split("|")):
            if _normal(value) not in known[key]:
                hint = suggestion(value, known[key].values())
                raise InputError(f"--only: {key}={value} is not in this table; {hint}")
            wanted.setdefault(key, []).append(_normal(value))
    return [
        cell
        for cell in cells
        if all(_normal(cell.facts.get(key, "")) in values for key, values in wanted.items())
        and (not cell.extra or _normal(cell.facts["method"]) in wanted.get("method", []))
    ]


def _normal(value: str) -> str:
    """Return the same text for equal words or numbers: 0.10 is 0.1."""
    try:
        return str(float(value))
    except ValueError:
        return value.lower()


def missing_files(dataset: str, root: Path) -> list[str]:
    """Return a line for every missing or wrong file of a dataset: where it goes and where it comes from."""
    spec = SPECS[dataset]
    sources = {remote.name: f" (from {addresses(remote, dataset)[0]})" for remote in spec.files}
    return [
        f"{dataset}: {found.path} {'is missing' if found.status == 'missing' else found.detail}"
        + sources.get(found.path.name, "")
        for found in DatasetFiles.remembered(spec, root).results()
        if found.status != "ok"
    ]


def check_data(datasets: Iterable[str], root: Path, at_hand: Collection[str] = ()) -> None:
    """Raise an `InputError` that names every missing file; data `at_hand` counts as present."""
    names = list(dict.fromkeys(datasets))
    missing = {name: lines for name in names if name not in at_hand and (lines := missing_files(name, root))}
    if missing:
        problems = [line for lines in missing.values() for line in lines]
        steps = [
            f"  {root / name}: {by_hand}"
            if (by_hand := SPECS[name].by_hand)
            else f"  fedsol data fetch {name} --root {root}"
            for name in missing
        ]
        rest = [name for name in names if name not in missing]
        only = [f"Available: {', '.join(rest)}: --only {shlex.quote('dataset=' + '|'.join(rest))}"] if rest else []
        raise InputError("\n".join(["some data is missing", *problems, "To get it:", *steps, *only]))
