"""Run directories made without training: as many and as long as a test needs."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from fedsol import Experiment
from fedsol.data.manifest import label_counts, save_manifest

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
    """A run whose accuracy rises from 10 % towards a height that depends on its settings and seed."""
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
    save_manifest(
        folder / "partition.json",
        partition,
        dataset="digits",
        samples=2000,
        settings=experiment.data.partition.model_dump(),
        seed=experiment.seed,
        class_counts=label_counts(labels, partition, classes) if counts else None,
    )
    surroundings = {"command": "fedsol run", "python": "3.11.7", "packages": {"torch": "2.13.0"}, "data_sha256": "ab"}
    (folder / "environment.json").write_text(json.dumps(surroundings))
    (folder / "experiment.toml").write_text(experiment.to_toml())
    if analyses:
        (folder / "analysis").mkdir()
        _lines(folder / "analysis" / "divergence.jsonl", [_divergence(number, rng) for number in range(1, rounds + 1)])
        _lines(folder / "analysis" / "knowledge.jsonl", [_knowledge(number, rng) for number in range(1, rounds + 1)])
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
    return {
        "round": number,
        "global_local": 0.5 + 2 / number,
        "local_local": float(rng.normal(1, 0.1)),
        "layers": layers,
    }


def _knowledge(number: int, rng: np.random.Generator) -> dict[str, Any]:
    return {"round": number, "accuracy_before": 0.5, "accuracy_after": rng.uniform(0.2, 0.6, 4).tolist()}


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
