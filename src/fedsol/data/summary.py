"""A partition in numbers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedsol.data.heterogeneity import Heterogeneity, heterogeneity
from fedsol.data.manifest import Partition, label_counts, one_class_each
from fedsol.errors import InputError


@dataclass(frozen=True)
class PartitionSummary:
    """A partition in numbers; means are over clients, each counted once."""

    clients: int
    samples: int
    smallest: int
    median_size: float
    largest: int
    fewest_classes: int
    median_classes: float
    most_classes: int
    mean_entropy: float
    """Entropy of a client's labels in bits: 0 for one class, log2(classes) if all classes are equally frequent."""
    mean_distance: float
    """Total variation distance of a client's labels from all labels: 0 for the same mixture, at most 1."""
    heterogeneity: Heterogeneity


def partition_summary(labels: ArrayLike, partition: Partition, classes: int) -> PartitionSummary:
    """Return sizes, classes per client and how far the clients' labels are from the labels of all samples."""
    labels, classes = one_class_each(labels, classes)
    counts = label_counts(labels, partition, classes)
    sizes, held = counts.sum(axis=1), (counts > 0).sum(axis=1)
    if len(sizes) == 0 or sizes.min() == 0:
        raise InputError("partition: must have clients, each with at least one sample")
    shares = counts / sizes[:, None]
    overall = np.bincount(labels, minlength=classes) / len(labels)
    logs = np.log2(np.where(shares > 0, shares, 1.0))
    return PartitionSummary(
        clients=len(sizes),
        samples=int(sizes.sum()),
        smallest=int(sizes.min()),
        median_size=float(np.median(sizes)),
        largest=int(sizes.max()),
        fewest_classes=int(held.min()),
        median_classes=float(np.median(held)),
        most_classes=int(held.max()),
        mean_entropy=float(np.abs((shares * logs).sum(axis=1)).mean()),
        mean_distance=float(0.5 * np.abs(shares - overall).sum(axis=1).mean()),
        heterogeneity=heterogeneity(counts),
    )
