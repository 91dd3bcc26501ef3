"""Some cells of a recipe (`--only 'dataset=cifar10,alpha=0.1,method=fedavg|fedsol'`), and the data they take."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fedsol.config.tables import suggestion
from fedsol.data.catalog import SPECS
from fedsol.data.files import DatasetFiles, addresses
from fedsol.errors import InputError
from fedsol.paper.recipe import Cell


def select(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """Return the cells that agree with every condition; `--only` is repeatable: `method=fedavg`, `method=fedsol`.

    Extra cells only where a condition names them by method.
    """
    wanted = _conditions(cells, only)
    return [
        cell
        for cell in cells
        if all(_normal(cell.facts.get(key, "")) in values for key, values in wanted.items())
        and (not cell.extra or _normal(cell.facts["method"]) in wanted.get("method", []))
    ]


def option(key: str, values: Sequence[str]) -> str:
    """Return the option that chooses these values, as a shell takes it."""
    return f"--only {shlex.quote(key + '=' + '|'.join(values))}"


def _conditions(cells: Sequence[Cell], only: Sequence[str]) -> dict[str, list[str]]:
    known: dict[str, dict[str, str]] = {}
    for cell in cells:
        for key, value in cell.facts.items():
            known.setdefault(key, {})[_normal(value)] = value
    wanted: dict[str, list[str]] = {}
    for part in (part.strip() for text in only for part in text.split(",")):
        key, separator, values = part.partition("=")
        if not separator:
            raise InputError(
                f"--only: {part!r} is not allowed: must be KEY=VALUE, several values as in 'dataset=cifar10|mnist'"
            )
        if key not in known:
            raise InputError(f"--only: unknown key {key!r}; {suggestion(key, known)}")
        for value in (value.strip() for value in values.split("|")):
            if _normal(value) not in known[key]:
                raise InputError(
                    f"--only: {key}={value} is not in this table; {suggestion(value, known[key].values())}"
                )
            wanted.setdefault(key, []).append(_normal(value))
    return wanted


def _normal(value: str) -> str:
    """Return the same text for equal words or numbers: 0.10 is 0.1."""
    try:
        return str(float(value))
    except ValueError:
        return value.lower()


def missing_files(dataset: str, root: Path) -> list[str]:
    """Return a line for every missing or wrong file of a dataset: where it goes and where it comes from."""
    spec = SPECS[dataset]
    urls = {remote.name: addresses(remote, dataset)[0] for remote in spec.files}
    lines = []
    for result in DatasetFiles.remembered(spec, root).results():
        if result.status != "ok":
            source = f" (from {urls[result.path.name]})" if result.path.name in urls else ""
            problem = "is missing" if result.status == "missing" else result.detail
            lines.append(f"{dataset}: {result.path} {problem}{source}")
    return lines


def check_data(datasets: Iterable[str], root: Path, missing: Callable[[str, Path], list[str]] | None = None) -> None:
    """Raise an `InputError` that names every missing file, unless all data exists; `missing` finds them."""
    at_hand, problems, remedies = [], [], []
    for name in dict.fromkeys(datasets):
        lines = (missing or missing_files)(name, root)
        problems += lines
        if lines:
            by_hand = SPECS[name].by_hand
            remedies.append(f"{root / name}: {by_hand}" if by_hand else f"fedsol data fetch {name} --root {root}")
        else:
            at_hand.append(name)
    if problems:
        rest = f"\nAt hand: {', '.join(at_hand)}: {option('dataset', at_hand)}" if at_hand else ""
        steps = "\n".join(f"  {remedy}" for remedy in dict.fromkeys(remedies))
        raise InputError("not all data is there\n" + "\n".join(problems) + f"\nTo have it:\n{steps}{rest}")
