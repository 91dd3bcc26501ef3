"""The partition of the first run: which client has how much of which class."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsol.analysis.base import Analysis, Runs
from fedsol.data.description import client_names_of
from fedsol.data.manifest import label_counts
from fedsol.data.summary import partition_summary
from fedsol.plots.partition import Names, partition_figure
from fedsol.plots.style import Figure


@dataclass(frozen=True)
class PartitionAnalysis(Analysis[dict[str, Any]]):
    """Bars of classes for each client, or a heat map for many."""

    stem = "partition-picture"

    def measure(self, runs: Runs) -> dict[str, Any]:
        """Return the seed, a summary, and the samples by client and class."""
        federation = runs.replays[0].federation
        held = federation.dataset.train.labels.numpy(), [indices.numpy() for indices in federation.partition]
        summary = partition_summary(*held, federation.dataset.classes)
        samples = label_counts(*held, federation.dataset.classes).tolist()
        names = Names(federation.dataset.class_names, client_names_of(federation.dataset, federation.experiment.data))
        return {"seed": federation.experiment.seed, "summary": summary, "samples": samples, "names": names}

    def draw(self, found: dict[str, Any], subject: str) -> Figure:
        return partition_figure(np.array(found["samples"]), f"{subject}, seed {found['seed']}", found["names"])

    def say(self, found: dict[str, Any]) -> list[str]:
        summary = found["summary"]
        return [f"{summary.clients} clients, {summary.smallest} to {summary.largest} samples each"]
