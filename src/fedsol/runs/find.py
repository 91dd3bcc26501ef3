"""Find runs in and below directories, and make directories for new ones."""

import os
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from fedsol.errors import InputError
from fedsol.runs.run import Run


def find_runs(places: Sequence[Path]) -> list[Run]:
    """Return the runs in and below these directories, each once, naturally sorted by name."""
    found: dict[Path, Run] = {}
    for place in places:
        if not place.is_dir():
            raise InputError(f"{place}: no such directory")
        below = list(runs_below(place))
        if not below:
            raise InputError(f"{place}: no run here or below (no experiment.toml with metrics.jsonl)")
        for run in below:
            found.setdefault(run.path.resolve(), run)
    return list(found.values())


def runs_below(place: Path) -> Iterator[Run]:
    """Yield the run in a directory, or the runs below it; a run is not searched for others."""
    for folder, folders, files in os.walk(place):
        if "experiment.toml" in files and "metrics.jsonl" in files:
            folders.clear()
            yield Run.load(folder)
        folders.sort(key=_natural)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort `seed-2` before `seed-10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def make_directory_for(label: str) -> Path:
    """Make a directory below runs/ and return it: nobody else has it, even if started in the same second."""
    base = Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{label}"
    path, number = base, 1
    while True:
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
            path = base.with_name(f"{base.name}-{number}")
        except OSError as error:
            raise InputError(f"{path}: cannot be used as a directory: {error.strerror or error}") from error
        else:
            return path
