"""The partition of the first run: which client has how much of which class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedsol.analysis.base import Analysis, Runs
from fedsol.data.manifest import label_counts
from fedsol.data.partition import PartitionSummary, partition_summary

if TYPE_CHECKING:
    from fedsol.plots.style import Figure


@dataclass(frozen=True)
class Holdings:
    """The samples of all clients."""

    seed: int
    summary: PartitionSummary
    samples: list[list[int]]
    """By client and class."""


@dataclass(frozen=True)
class PartitionAnalysis(Analysis[Holdings]):
    """Bars of classes for each client, or a heat map for many."""

    stem = "partition-picture"

    def measure(self, runs: Runs) -> Holdings:
        federation = runs.replays[0].federation
        labels, classes = federation.dataset.train.labels.numpy(), federation.dataset.classes
        clients = [indices.numpy() for indices in federation.partition]
        samples = label_counts(labels, clients, classes).tolist()
        return Holdings(federation.experiment.seed, partition_summary(labels, clients, classes), samples)

    def draw(self, found: Holdings, subject: str) -> Figure:
        from fedsol.plots.partition import partition_figure

        return partition_figure(np.array(found.samples), f"{subject}, seed {found.seed}")

    def say(self, found: Holdings) -> list[str]:
        summary = found.summary
        return [f"{summary.clients} clients, {summary.smallest} to {summary.largest} samples each"]
