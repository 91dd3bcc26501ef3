"""The runs below a folder, found by their experiments and not by their names."""

import json
import statistics
from pathlib import Path
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.config.overrides import differing_keys, flatten, keys_without_effect
from fedsol.paper import settings
from fedsol.runs.directory import RunDirectory
from fedsol.runs.find import runs_below
from fedsol.runs.run import Run

LAST = 10
"""Rounds to average over, as single rounds are noisy."""


def smoothed(run: Run) -> list[tuple[int, float]]:
    """Return every evaluated round with the mean accuracy of the last ten (fewer at the beginning)."""
    values = run.accuracies
    return [
        (number, statistics.fmean(accuracy for _, accuracy in values[max(0, end - LAST) : end]))
        for end, (number, _) in enumerate(values, start=1)
    ]


def last_mean(run: Run) -> float:
    """Return the mean accuracy of the last ten evaluated rounds."""
    return smoothed(run)[-1][1]


def first_round_at(accuracy: float, run: Run) -> int | None:
    """Return the first round at which the mean of ten is at least this; None if it never is."""
    return next((number for number, mean in smoothed(run)[LAST - 1 :] if mean >= accuracy), None)


class Store:
    """The runs below a folder by experiment: one that several tables share is run once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runs: dict[str, Run] = {}
        for run in runs_below(folder):
            self._runs.setdefault(fingerprint(run.experiment), run)

    def finished(self, experiment: Experiment) -> Run | None:
        """Return the run of this experiment if all its rounds are done."""
        run = self._runs.get(fingerprint(experiment))
        return run if run and run.is_finished else None

    def place_for(self, experiment: Experiment) -> Path:
        """Return where a run of this experiment is or will be: a readable name that no other experiment has."""
        if begun := self._runs.get(fingerprint(experiment)):
            return begun.path
        path = self.folder / folder_name(experiment)
        number = 1
        while RunDirectory(path).exists:
            number += 1
            path = path.with_name(f"seed-{experiment.seed}-{number}")
        return path


def fingerprint(experiment: Experiment) -> str:
    """Return the same text for experiments that give the same result."""
    left_out = keys_without_effect(experiment)
    return json.dumps({key: value for key, value in flat(experiment).items() if key not in left_out})


def flat(experiment: Experiment) -> dict[str, Any]:
    """Return every setting by its dotted key, sorted."""
    return dict(sorted(flatten(experiment.model_dump()).items()))


def folder_name(experiment: Experiment) -> Path:
    """Return `cifar10-dirichlet-0.1/fedprox-mu=0.5+epochs=3/seed-0`.

    It names the method's non-default settings, and everything else that differs from the paper's main table.
    """
    data, model, paper = experiment.data, experiment.model.name, paper_setting(experiment)
    levels = {"sharding": [f"{data.partition.shards}"], "dirichlet": [f"{data.partition.alpha:g}"]}
    group = [data.name, data.partition.kind, *levels.get(data.partition.kind, [])]
    group += [model] if model not in (None, "cnn") else []
    group += [f"part-{data.part:g}"] if data.part < 1 else []
    method = "-".join([experiment.algorithm["name"], *own_settings(experiment)])
    changed = [
        f"{key.rpartition('.')[2]}={flat(experiment).get(key)}"
        for key in differing_keys(experiment, paper)
        if key not in ("seed", "data.part") and not key.startswith("algorithm.")
    ]
    return Path("-".join(group)) / "+".join([method, *changed]).replace("/", "_") / f"seed-{experiment.seed}"


def paper_setting(run: Experiment) -> Experiment:
    """Return the paper's setting of a run's dataset, level of heterogeneity, model and method."""
    partition = run.data.partition
    level = f"s = {partition.shards}" if partition.kind == "sharding" else f"alpha = {partition.alpha}"
    return settings.experiment(run.data.name, level, run.algorithm, run.model.name or "cnn")


def own_settings(experiment: Experiment) -> list[str]:
    """Return the settings of a method that are not its defaults and have an effect: `rho=1.5`."""
    algorithm, left_out = experiment.algorithm, keys_without_effect(experiment)
    plain = Experiment(algorithm={"name": algorithm["name"]}).algorithm
    return [
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in algorithm.items()
        if value != plain.get(key) and f"algorithm.{key}" not in left_out
    ]
