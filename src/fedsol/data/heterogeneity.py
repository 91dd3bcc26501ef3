"""How heterogeneous a partition is, in three numbers that can be compared across datasets and kinds of partitions."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Heterogeneity:
    """How far clients differ in labels and sizes; means are over clients with samples, each counted once."""

    jensen_shannon: float
    """Mean Jensen-Shannon distance of a client's labels to those of all clients: 0 for the same mixture, below 1."""
    effective_classes: float
    """Mean effective number of a client's classes, the exponential of the entropy of its labels: 1 for one class."""
    gini: float
    """Gini coefficient of the clients' sizes: 0 for equal sizes, toward 1 if one client has all samples."""


def heterogeneity(counts: ArrayLike) -> Heterogeneity:
    """Return the numbers for the samples of every class at every client, shape (clients, classes)."""
    table = np.asarray(counts, dtype=np.float64)
    table = table[table.sum(axis=1) > 0]
    sizes = table.sum(axis=1)
    shares, overall = table / sizes[:, None], table.sum(axis=0) / sizes.sum()
    middle = (shares + overall) / 2
    # In bits a divergence is at most 1; rounding may take that of equal mixtures below 0.
    divergence = (_divergence(shares, middle) + _divergence(overall, middle)) / 2
    entropy = -np.where(shares > 0, shares * np.log(np.where(shares > 0, shares, 1.0)), 0.0).sum(axis=1)
    return Heterogeneity(
        jensen_shannon=float(np.sqrt(np.maximum(divergence, 0.0)).mean()),
        effective_classes=float(np.exp(entropy).mean()),
        gini=_gini(sizes),
    )


def _divergence(shares: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    """Return the Kullback-Leibler divergence of each row in bits; `others` is positive wherever `shares` is."""
    ratio = np.divide(shares, others, out=np.ones_like(others), where=(shares > 0) & (others > 0))
    total: NDArray[Any] = (shares * np.log2(ratio)).sum(axis=1)
    return total


def _gini(sizes: NDArray[Any]) -> float:
    """Return half the mean difference of two sizes, relative to the mean size."""
    ranks = 2 * np.arange(1, len(sizes) + 1) - len(sizes) - 1
    return float((ranks * np.sort(sizes)).sum() / (len(sizes) * sizes.sum()))
