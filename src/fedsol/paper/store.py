"""The runs below a folder, found by the experiment they hold and not by their names."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.config.overrides import differing_keys, keys_without_effect
from fedsol.errors import InputError
from fedsol.paper import setting
from fedsol.paper.recipe import FinishedRun
from fedsol.runs.directory import RunDirectory


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

    def place_for(self, experiment: Experiment) -> Path:
        """Where a run of this experiment is, or shall be: a readable name that no other experiment has."""
        begun = self.begun(experiment)
        if begun is not None:
            return begun
        path = self.folder / folder_name(experiment)
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


def folder_name(experiment: Experiment) -> Path:
    """`cifar10-dirichlet-0.1/fedprox-mu=0.5+epochs=3/seed-0`.

    Named are the method's settings that are not its defaults, and what else is not as in the paper's main table.
    """
    partition, part = experiment.data.partition, experiment.data.part
    levels = {"sharding": [f"{partition.shards}"], "dirichlet": [f"{partition.alpha:g}"]}
    group = [experiment.data.name, partition.kind, *levels.get(partition.kind, [])]
    if experiment.model.name not in (None, "cnn"):
        group.append(str(experiment.model.name))
    if part < 1:
        group.append(f"part-{part:g}")
    cell = "-".join([experiment.algorithm["name"], *own_settings(experiment)])
    changed = [
        f"{key.rpartition('.')[2]}={flat(experiment).get(key)}"
        for key in differing(experiment, usual(experiment))
        if key != "data.part" and not key.startswith("algorithm.")
    ]
    return Path("-".join(group)) / "+".join([cell, *changed]).replace("/", "_") / f"seed-{experiment.seed}"


def usual(run: Experiment) -> Experiment:
    """The paper's setting of a run's dataset, level of heterogeneity, model and method."""
    partition = run.data.partition
    level = f"s = {partition.shards}" if partition.kind == "sharding" else f"alpha = {partition.alpha}"
    return setting.experiment(run.data.name, level, run.algorithm, run.model.name or "cnn")


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


def make_folder(folder: Path) -> None:
    """Refuses a place that cannot hold runs before anything is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out: {folder} cannot be used as a directory: {error.strerror}") from error
