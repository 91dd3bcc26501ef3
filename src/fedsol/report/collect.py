"""Reading run directories for a report: as they are, without importing what their experiments name."""

import json
import operator
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsol.config.experiment import KEYS_WITHOUT_EFFECT, flatten, read_toml
from fedsol.errors import InputError
from fedsol.report.client_accuracies import ClientAccuracies, after_local_training, personal_models
from fedsol.report.columns import NOT_ANALYSED, to_columns
from fedsol.runs.directory import RunDirectory
from fedsol.runs.rows import Row


@dataclass(frozen=True)
class FoundRun:
    """What a report knows of one run."""

    name: str
    """Its directory, as short as it can be told from the others."""
    path: Path
    settings: dict[str, Any]
    """Its experiment, with dotted keys."""
    toml: str
    rows: list[Row]
    environment: dict[str, Any] = field(default_factory=dict)
    partition: dict[str, Any] | None = None
    analyses: dict[str, dict[str, Any]] = field(default_factory=dict)
    clients: list[ClientAccuracies] = field(default_factory=list)

    @property
    def seed(self) -> int:
        """The seed of everything random in it."""
        return int(self.settings.get("seed", 0))

    @property
    def configuration(self) -> dict[str, Any]:
        """All that a result depends on but the seed: runs that share it differ by chance alone."""
        left_out = {*KEYS_WITHOUT_EFFECT, "seed"}
        settings = {key: value for key, value in self.settings.items() if key not in left_out}
        return {**settings, "data.sha256": str(self.environment.get("data_sha256", ""))[:12]}


def find_runs(places: Sequence[Path]) -> list[Path]:
    """The run directories among and below the given ones, each once."""
    found: dict[Path, Path] = {}
    for place in places:
        if not place.is_dir():
            raise InputError(f"{place}: there is no such directory; allowed: a run, or a directory with runs below it")
        below = [Path(folder) for folder, _, files in _walk(place) if _is_run(files)]
        if not below:
            raise InputError(f"{place}: holds no run, neither itself nor below (no experiment.toml with metrics.jsonl)")
        for path in below:
            found.setdefault(path.resolve(), path)
    return list(found.values())


def read_runs(paths: Sequence[Path]) -> list[FoundRun]:
    """The runs in these directories."""
    names = _short_names(paths)
    return [_read_run(path, name) for path, name in zip(paths, names, strict=True)]


def _walk(place: Path) -> Any:
    """As os.walk, in order of names, and never into a run."""
    for folder, folders, files in os.walk(place):
        folders[:] = [] if _is_run(files) else sorted(folders, key=_natural)
        yield folder, folders, files


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts `seed-2` before `seed-10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def _is_run(files: Sequence[str]) -> bool:
    return "experiment.toml" in files and "metrics.jsonl" in files


def _short_names(paths: Sequence[Path]) -> list[str]:
    """The paths without what all of them begin with; a single run keeps its directory's name."""
    resolved = [path.resolve() for path in paths]
    parents = [str(path.parent) for path in resolved]
    common = Path(os.path.commonpath(parents))
    return [str(path.relative_to(common)) for path in resolved]


def _read_run(path: Path, name: str) -> FoundRun:
    tables = read_toml(path / "experiment.toml")
    analysed = {file.stem: _read_lines(file) for file in sorted((path / "analysis").glob("*.jsonl"))}
    return FoundRun(
        name=name,
        path=path,
        settings=flatten(tables),
        toml=(path / "experiment.toml").read_text(encoding="utf-8"),
        rows=RunDirectory(path).read_rows(),
        environment=_read_object(path / "environment.json") or {},
        partition=_read_partition(path / "partition.json"),
        analyses={stem: to_columns(rows, NOT_ANALYSED) for stem, rows in analysed.items()},
        clients=[*after_local_training(analysed.get("preservation", [])), *personal_models(path / "personal")],
    )


def _read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object of a file, None where there is no file."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: is not a JSON object")
    return content


def _read_partition(path: Path) -> dict[str, Any] | None:
    """Sizes and class counts by client; manifests of before class counts have sizes alone.

    None where nothing is known: the server of a deployment does not learn how much data its nodes have.
    """
    content = _read_object(path)
    if content is None:
        return None
    try:
        sizes = [len(indices) for indices in content["clients"]]
        if sizes and not any(sizes):
            return None
        counts = content.get("class_counts")
        if counts is not None and [sum(map(operator.index, row)) for row in counts] != sizes:
            raise TypeError("class_counts does not add up to the clients")
        return {
            "sha256": str(content["sha256"]),
            "kind": str(content["settings"].get("kind", "")),
            "sizes": sizes,
            "counts": counts,
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: is not a partition manifest ({error})") from error


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file, one per line; a torn last line (it is being written) is left out."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}: line {number} is not JSON ({error})") from error
        if not isinstance(row, dict):
            raise InputError(f"{path}: line {number} is not a JSON object")
        rows.append(row)
    return rows
