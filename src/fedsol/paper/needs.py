"""Which files a recipe needs and does not find."""

from collections.abc import Callable, Iterable
from pathlib import Path

from fedsol.data.catalog import SPECS
from fedsol.data.files import DatasetFiles, addresses
from fedsol.errors import InputError
from fedsol.paper.selection import option

Missing = Callable[[str, Path], list[str]]


def missing_files(dataset: str, root: Path) -> list[str]:
    """A line for every file or folder of a dataset that is missing or wrong: where it goes and where it comes from."""
    spec = SPECS[dataset]
    urls = {remote.name: addresses(remote, dataset)[0] for remote in spec.files}
    lines = []
    for result in DatasetFiles.remembered(spec, root).results():
        if result.status != "ok":
            source = f" (from {urls[result.path.name]})" if result.path.name in urls else ""
            problem = "is missing" if result.status == "missing" else result.detail
            lines.append(f"{dataset}: {result.path} {problem}{source}")
    return lines


def check_data(datasets: Iterable[str], root: Path, missing: Missing | None = None) -> None:
    """Raises `InputError` that names every missing file, unless all data is there; `missing` finds them."""
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
