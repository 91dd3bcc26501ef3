"""The runs below a folder, found by the experiment they hold and not by their names."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsol.errors import InputError
from fedsol.experiment import Experiment, differing_keys, keys_without_effect
from fedsol.paper.recipe import FinishedRun
from fedsol.runs import RunDirectory


class Store:
    """Runs by experiment: a cell that several tables share is run once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths: dict[str, Path] = {}
        for file in sorted(folder.rglob("experiment.toml")):
            self._paths.setdefault(fingerprint(Experiment.load(file)), file.parent)

    def begun(self, experiment: Experiment) -> Path | None:
        """Where a run of this experiment was begun, finished or not."""
        return self._paths.get(fingerprint(experiment))

    def finished(self, experiment: Experiment) -> FinishedRun | None:
        """The run of this experiment, if all its rounds are done."""
        path = self.begun(experiment)
        if path is None or not RunDirectory(path).exists:
            return None
        run = read_run(path)
        return run if len(run.rows) == experiment.rounds else None

    def place_for(self, experiment: Experiment, paper: Experiment) -> Path:
        """Where a run of this experiment is, or shall be: a readable name that no other experiment has."""
        begun = self.begun(experiment)
        if begun is not None:
            return begun
        path = self.folder / folder_name(experiment, paper)
        number = 1
        while RunDirectory(path).exists:
            number += 1
            path = path.with_name(f"seed-{experiment.seed}-{number}")
        self._paths[fingerprint(experiment)] = path
        return path


def fingerprint(experiment: Experiment) -> str:
    """The same for two experiments that give the same result."""
    left_out = keys_without_effect(experiment)
    return json.dumps({key: value for key, value in flat(experiment).items() if key not in left_out})


def flat(experiment: Experiment) -> dict[str, Any]:
    """Every setting by its dotted key, in order."""

    def walk(tables: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in sorted(tables):
            value = tables[key]
            found |= walk(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
        return found

    return walk(experiment.model_dump(), "")


def read_run(path: Path) -> FinishedRun:
    """A run directory, or what was kept of one: experiment.toml and metrics.jsonl."""
    directory = RunDirectory(path)
    return FinishedRun(path, directory.read_experiment(), directory.read_rows())


def folder_name(experiment: Experiment, paper: Experiment) -> Path:
    """`cifar10-dirichlet-0.1/fedsol-rho=1.5/seed-0`; what differs from the paper's own setting is in the name."""
    partition = paper.data.partition
    level = partition.shards if partition.kind == "sharding" else f"{partition.alpha:g}"
    group = f"{paper.data.name}-{partition.kind}-{level}" + (
        f"-{paper.model.name}" if paper.model.name != "cnn" else ""
    )
    cell = "-".join([paper.algorithm["name"], *own_settings(paper)])
    changed = [f"{key.rpartition('.')[2]}={flat(experiment).get(key)}" for key in differing(experiment, paper)]
    return Path(group) / "+".join([cell, *changed]).replace("/", "_") / f"seed-{experiment.seed}"


def own_settings(experiment: Experiment) -> list[str]:
    """What of a method's table is not its default, and has an effect: `rho=1.5`."""
    algorithm, left_out = experiment.algorithm, keys_without_effect(experiment)
    plain = Experiment(algorithm={"name": algorithm["name"]}).algorithm
    return [
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in algorithm.items()
        if value != plain.get(key) and f"algorithm.{key}" not in left_out
    ]


def differing(experiment: Experiment, paper: Experiment) -> list[str]:
    """Keys in which a run is not the paper's, whatever its seed."""
    return [key for key in differing_keys(paper, experiment) if key != "seed"]


def check_folder(folder: Path) -> None:
    """Refuses a place that cannot hold runs before anything is done."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out: {folder} is not a folder")
