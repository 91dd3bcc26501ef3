"""Mean and standard deviation of numbers, some of which may be missing; shares with a limit."""

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class MeanStd(NamedTuple):
    """A mean and its standard deviation."""

    mean: float
    std: float


def sample_mean_std(values: Iterable[float | None]) -> MeanStd | None:
    """Return mean and standard deviation of a sample, such as some seeds: n - 1 in the divisor, 0 for one value.

    Missing values are skipped; without any value there is no result.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    return MeanStd(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else 0.0)


def population_mean_std(values: Iterable[float | None]) -> MeanStd | None:
    """Return mean and standard deviation of a whole population, such as all clients: n in the divisor."""
    known = [value for value in values if value is not None]
    return MeanStd(statistics.fmean(known), statistics.pstdev(known)) if known else None


def known_mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not missing; None without any."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def limited_shares(sizes: Sequence[float], most: float) -> list[float]:
    """Return each size as a share of their sum, none above `most`; what is cut off goes to the others by size.

    With so few sizes that some share must be above `most`, the shares are equal.
    """
    total, limited = sum(sizes), set[int]()
    shares = [size / total for size in sizes]
    if len(sizes) * most <= 1:
        return [1 / len(sizes)] * len(sizes) if max(shares, default=0.0) > most else shares
    while over := {i for i, share in enumerate(shares) if share > most and i not in limited}:
        limited |= over
        left = 1 - most * len(limited)
        rest = sum(size for i, size in enumerate(sizes) if i not in limited)
        shares = [most if i in limited else left * size / rest for i, size in enumerate(sizes)]
    return shares
