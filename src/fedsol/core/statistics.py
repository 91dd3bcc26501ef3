"""Mean and standard deviation of numbers, some of which may be missing."""

import statistics
from collections.abc import Iterable
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
