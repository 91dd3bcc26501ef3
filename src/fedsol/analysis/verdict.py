"""What a comparison shows, in words: results, what was forgotten, rounds to a target, and who is ahead."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedsol.analysis.preservation import forgetting
from fedsol.config.task import Measure
from fedsol.core.statistics import MeanStd, sample_mean_std
from fedsol.runs.rows import Row

TARGETS = 20
"""Targets are multiples of 5 %, twentieths."""


@dataclass(frozen=True)
class Summary:
    """A method's runs by seed: their final results, what they forgot by the end, and the mean result by round."""

    label: str
    finals: Mapping[int, float]
    forgotten: Mapping[int, float]
    curve: Mapping[int, float]

    def round_at(self, target: float) -> int | None:
        """Return the first round whose mean over the seeds reaches the target."""
        return next((number for number, value in sorted(self.curve.items()) if value >= target), None)


def summarize(label: str, seeds: Mapping[int, Sequence[Row]], key: str) -> Summary:
    """Return the summary of a method; `key` is that of its result in a row. What is not finite counts as missing."""
    tables = {seed: _values(rows, key) for seed, rows in seeds.items()}
    finals = {seed: table[max(table)] for seed, table in tables.items() if table}
    lost = {seed: forgetting(rows).forgetting for seed, rows in seeds.items()}
    common = set.intersection(*(set(table) for table in tables.values())) if tables else set()
    curve = {number: fmean(table[number] for table in tables.values()) for number in sorted(common)}
    return Summary(label, finals, {seed: values[-1] for seed, values in lost.items() if values}, curve)


def _values(rows: Sequence[Row], key: str) -> dict[int, float]:
    found = {row["round"]: row.get(key) for row in rows}
    return {number: value for number, value in found.items() if isinstance(value, float | int) and math.isfinite(value)}


def verdict(methods: Sequence[Summary], measure: Measure) -> list[str]:
    """Return a line for each method, and one that compares it with the first."""
    known = [method for method in methods if method.finals]
    target = common_target(known) if measure.is_share and measure.higher_is_better else None
    return [
        *(_line(method, measure, target) for method in known),
        *(sentence for method in known[1:] if (sentence := compared(known[0], method, measure))),
    ]


def common_target(methods: Sequence[Summary]) -> float | None:
    """Return the highest multiple of 5 % that every method reaches in some round; None if there is none."""
    peaks = [max(method.curve.values(), default=0.0) for method in methods]
    steps = math.floor(min(peaks, default=0.0) * TARGETS)
    return steps / TARGETS if steps > 0 else None


def _line(method: Summary, measure: Measure, target: float | None) -> str:
    spread = sample_mean_std(method.finals.values())
    assert spread is not None
    final = measure.spread_text(*spread) if len(method.finals) > 1 else measure.text(spread.mean)
    parts = [f"{measure.title} {final} after the last round"]
    if method.forgotten:
        parts.append(f"forgot {_amount(fmean(method.forgotten.values()))} of each class's best, on average")
    if target is not None:
        parts.append(f"reached {target:.0%} in round {method.round_at(target)}")
    return f"{method.label}: {'; '.join(parts)}."


def compared(base: Summary, other: Summary, measure: Measure) -> str | None:
    """Return who is ahead, by how much, and who forgets less; None without a seed that both have."""
    gap = _difference(base.finals, other.finals)
    if gap is None:
        return None
    seeds = base.finals.keys() & other.finals.keys()
    wins = sum(measure.better(other.finals[seed], base.finals[seed]) for seed in seeds)
    certainty = "one seed, so without a spread"
    if len(seeds) > 1:
        certainty = f"± {_amount(gap.std, measure)} over {len(seeds)} seeds, ahead with {wins} of them"
        certainty += ": too close to call" if abs(gap.mean) <= gap.std else ""
    is_ahead = measure.better(gap.mean, 0.0)
    place = f"{_amount(abs(gap.mean), measure)} {'ahead of' if is_ahead else 'behind'}" if gap.mean else "level with"
    about = _about_forgetting(_difference(base.forgotten, other.forgotten), is_ahead)
    return f"{other.label} ends {place} {base.label} ({certainty}){about}."


def _about_forgetting(gap: MeanStd | None, is_ahead: bool) -> str:
    """Return the end of the sentence: `, and forgets 9.1 points less`."""
    if gap is None or not gap.mean:
        return ", and forgets as much" if gap else ""
    is_less = gap.mean < 0
    words = "and" if is_ahead == is_less else "although it"
    return f", {words} forgets {_amount(abs(gap.mean))} {'less' if is_less else 'more'}"


def _difference(base: Mapping[int, float], other: Mapping[int, float]) -> MeanStd | None:
    """Return mean and spread of the differences over the seeds that both have."""
    return sample_mean_std(other[seed] - base[seed] for seed in sorted(base.keys() & other.keys()))


def _amount(value: float, measure: Measure | None = None) -> str:
    return f"{100 * value:.1f} points" if measure is None or measure.is_share else f"{value:.3g}"
