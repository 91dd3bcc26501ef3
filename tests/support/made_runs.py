"""Run directories made without training: as many and as long as a test needs."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from fedsol import Experiment
from fedsol.analysis.base import as_plain
from fedsol.analysis.divergence import Divergence
from fedsol.analysis.preservation import Preservation
from fedsol.data.manifest import Manifest, label_counts, save_manifest
from fedsol.federation.personal import EpochResult, PersonalResult
from fedsol.personalization.results import PersonalDirectory

CLIENTS = 20


def make_run(
    folder: Path,
    changes: dict[str, Any] | None = None,
    rounds: int = 10,
    classes: int = 10,
    finished: int | None = None,
    counts: bool = True,
    analyses: bool = False,
) -> Path:
    """A run whose accuracy rises from 10 % toward a height that depends on its settings and seed."""
    experiment = Experiment(rounds=rounds, model={"name": "small"}).override(changes or {})
    experiment = experiment.override({"server.fraction": 0.2, "data.partition.clients": CLIENTS})
    rng = np.random.default_rng([experiment.seed, *map(ord, experiment.algorithm["name"])])
    height = 0.6 + 0.02 * len(experiment.algorithm["name"]) + 0.02 * float(experiment.algorithm.get("rho", 0))
    folder.mkdir(parents=True)
    rows = [_row(number, rounds, height, classes, rng) for number in range(1, (finished or rounds) + 1)]
    _lines(folder / "metrics.jsonl", rows)
    labels = rng.integers(0, classes, 2000)
    owners = np.sort(rng.integers(0, CLIENTS, 2000))
    partition = [np.flatnonzero(owners == client) for client in range(CLIENTS)]
    labels = np.sort(labels) if classes <= CLIENTS else labels
    manifest = Manifest("digits", 2000, experiment.data.partition.model_dump(), experiment.seed, partition)
    save_manifest(folder / "partition.json", manifest, label_counts(labels, partition, classes) if counts else None)
    surroundings = {"command": "fedsol run", "python": "3.11.7", "packages": {"torch": "2.13.0"}, "data_sha256": "ab"}
    (folder / "environment.json").write_text(json.dumps(surroundings))
    (folder / "experiment.toml").write_text(experiment.to_toml())
    if analyses:
        (folder / "analysis").mkdir()
        _lines(folder / "analysis" / "divergence.jsonl", [_divergence(number, rng) for number in range(1, rounds + 1)])
        preserved = [_preservation(number, rng) for number in range(1, rounds + 1)]
        _lines(folder / "analysis" / "preservation.jsonl", preserved)
    return folder


def _row(number: int, rounds: int, height: float, classes: int, rng: np.random.Generator) -> dict[str, Any]:
    share = 1 - math.exp(-4 * number / rounds)
    by_class = np.clip(0.1 + (height - 0.1) * share + rng.normal(0, 0.12 * (1.2 - share), classes), 0, 1)
    return {
        "round": number,
        "test_accuracy": float(by_class.mean()),
        "test_loss": float(2.3 - 1.6 * share + rng.normal(0, 0.05)),
        "train_loss": float(1.5 - 1.2 * share + rng.normal(0, 0.05)),
        "clients": 4,
        "examples": 400,
        "seconds": 0.5,
        "bytes_up": 300_000,
        "bytes_down": 300_000,
        "rejected": 0,
        "clipped": 0,
        "dropped": 0,
        "stragglers": 0,
        "late": 0,
        "corrupted": 0,
        "client_ids": sorted(map(int, rng.choice(CLIENTS, 4, replace=False))),
        "class_accuracy": by_class.tolist(),
    }


def _divergence(number: int, rng: np.random.Generator) -> dict[str, Any]:
    layers = {"conv": 0.1 + 1 / number, "head": 0.3 + 2 / number}
    apart = tuple(rng.normal(1, 0.1, 4).tolist())
    found = Divergence(number, (1, 3, 5, 7), tuple(0.5 + share / number for share in apart), apart, layers, layers)
    return dict(as_plain(found))


def _preservation(number: int, rng: np.random.Generator) -> dict[str, Any]:
    after, held, absent = (tuple(rng.uniform(low, low + 0.3, 4).tolist()) for low in (0.2, 0.6, 0.1))
    classes = (0.5,) * 10
    whole = (0.5,) * 4
    found = Preservation(number, 0.5, (1, 3, 5, 7), after, whole, held, whole, absent, classes, classes)
    return dict(as_plain(found))


def add_personal(folder: Path, method: str = "finetune", test: str = "matched") -> None:
    """What `fedsol personalize` leaves in a run directory: five clients, of which one has no test set."""
    place = PersonalDirectory(folder / "personal" / method)
    place.path.mkdir(parents=True)
    place.begin({"settings": {"method": method, "test": test}})
    for client in range(5):
        before, after = (None, None) if client == 4 else (0.1 * client, 0.5 + 0.1 * client)
        place.append(PersonalResult(client, 10, 2, 10, before, (EpochResult(1, 1, before), EpochResult(5, 1, after))))


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
