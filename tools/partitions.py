"""How heterogeneous the partitions of `results/` are, without their clients: results/partitions.json."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

from fedsol.config.experiment import Experiment
from fedsol.config.tables import PartitionSettings
from fedsol.core.files import read_json_object, write_atomically
from fedsol.data.heterogeneity import Heterogeneity, heterogeneity

NAME = "partitions.json"

Key: TypeAlias = tuple[str, PartitionSettings, int]
"""The dataset, the settings and the seed of a partition, which decide it."""


def partitions_of(folders: Iterable[Path]) -> dict[Key, Heterogeneity]:
    """Return the partitions in the folders of runs or of `fedsol partition`, from the counts of their classes."""
    found = {}
    for path in sorted(folder / "partition.json" for folder in folders):
        content = read_json_object(path)
        if "class_counts" in content:
            key = (content["dataset"], PartitionSettings(**content["settings"]), content["seed"])
            found[key] = heterogeneity(content["class_counts"])
    return found


def key_of(experiment: Experiment) -> Key:
    """Return which partition a run has."""
    return experiment.data.name, experiment.data.partition, experiment.seed


def read_partitions(results: Path) -> dict[Key, Heterogeneity]:
    """Return the partitions that `results/` knows; none without a file."""
    file = results / NAME
    rows = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    return {
        (row["dataset"], PartitionSettings(**row["settings"]), row["seed"]): Heterogeneity(**row["heterogeneity"])
        for row in rows
    }


def write_partitions(results: Path, partitions: dict[Key, Heterogeneity]) -> None:
    """Write one partition per line."""
    rows = [
        {
            "dataset": dataset,
            "settings": settings.model_dump(exclude_none=True),
            "seed": seed,
            "heterogeneity": asdict(found),
        }
        for (dataset, settings, seed), found in partitions.items()
    ]
    lines = sorted(json.dumps(row) for row in rows)
    if lines:
        write_atomically(results / NAME, "[\n " + ",\n ".join(lines) + "\n]\n")
