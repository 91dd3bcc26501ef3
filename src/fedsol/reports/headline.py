"""What a report shows, in words: the setting, the verdict with its uncertainty, and forgetting."""

from collections.abc import Mapping, Sequence

from fedsol.analysis.preservation import forgetting
from fedsol.config.task import Measure
from fedsol.core.statistics import sample_mean_std
from fedsol.runs.groups import Group
from fedsol.runs.run import Run
from fedsol.studies.choice import interval

BASELINE = "fedavg"


def headline(runs: Sequence[Run], groups: Sequence[Group]) -> list[str]:
    """Return some sentences; none without a result."""
    measure = runs[0].primary if runs else None
    with_results = [group for group in groups if any(runs[number].final_result is not None for number in group.runs)]
    if measure is None or not with_results:
        return []
    sentences = [_setting(runs, groups), *_verdict(runs, with_results, measure)]
    return [*sentences, *_forgetting(runs, with_results)]


def _setting(runs: Sequence[Run], groups: Sequence[Group]) -> str:
    """Return the data, the clients, the rounds and the seeds, as far as all runs share them."""

    def common(key: str) -> object | None:
        values = {str(run.settings.get(key)): run.settings.get(key) for run in runs}
        return next(iter(values.values())) if len(values) == 1 else None

    parts = [str(common("data.name") or "Several datasets")]
    if (clients := common("data.partition.clients")) is not None:
        parts.append(f"{clients} clients")
    if (kind := common("data.partition.kind")) is not None:
        detail = {"dirichlet": "alpha", "sharding": "shards"}.get(str(kind))
        value = common(f"data.partition.{detail}") if detail else None
        parts.append(f"{kind} partition" + (f" ({detail} {value})" if value is not None else ""))
    rounds = sorted({len(run.rows) for run in runs})
    parts.append(_count(rounds[-1], "round") if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]} rounds")
    seeds = sorted({len(group.runs) for group in groups})
    parts.append(_count(seeds[-1], "seed") if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds")
    return f"{', '.join(parts)}."


def _verdict(runs: Sequence[Run], groups: Sequence[Group], measure: Measure) -> list[str]:
    """Return the final result of the best method, and how it compares with another: FedAvg, or the next best."""
    found = {group.label: _finals(runs, group) for group in groups}
    means = {label: sum(values.values()) / len(values) for label, values in found.items()}
    order = sorted(means, key=lambda label: -means[label] if measure.higher_is_better else means[label])
    best = order[0]
    first = f"{best} ends at {_text(list(found[best].values()), measure)} test {measure.title}"
    if len(order) == 1:
        return [f"{first}."]
    baselines = [label for label in order[2:] if label.split()[0] == BASELINE]
    compared = [
        f"{rival} at {_text(list(found[rival].values()), measure)}: {_difference(found[best], found[rival], measure)}"
        for rival in [order[1], *baselines[:1]]
    ]
    return [f"{first}; {'; '.join(compared)}."]


def _difference(best: Mapping[int, float], rival: Mapping[int, float], measure: Measure) -> str:
    """Return how much worse a rival is, by the seeds that both have."""
    sign = 1 if measure.higher_is_better else -1
    pairs = [sign * (best[seed] - rival[seed]) for seed in sorted(best.keys() & rival.keys())]
    if not pairs:
        return "they share no seed, so they cannot be compared in pairs"
    difference, half = interval(pairs)
    if half is None:
        return f"{_amount(difference, measure)} behind, with one seed, which says little"
    low, high = difference - half, difference + half
    judged = "more than chance explains" if low > 0 else "which may be chance"
    ends = f"{_amount(low, measure, '')} to {_amount(high, measure)}"
    return (
        f"{_amount(difference, measure)} behind (95 % interval {ends}, {_count(len(pairs), 'pair')} of seeds), {judged}"
    )


def _amount(value: float, measure: Measure, unit: str = " points") -> str:
    return f"{100 * value:.1f}{unit}" if measure.is_share else f"{value:.3g}"


def _finals(runs: Sequence[Run], group: Group) -> dict[int, float]:
    finals = {runs[number].seed: runs[number].final_result for number in group.runs}
    return {seed: value for seed, value in finals.items() if value is not None}


def _forgetting(runs: Sequence[Run], groups: Sequence[Group]) -> list[str]:
    """Return how far the classes ended below their best, for every method; nothing for a task without classes."""
    found = {}
    for group in groups:
        values = [lost[-1] for number in group.runs if (lost := forgetting(runs[number].rows).forgetting)]
        if values:
            found[group.label] = sum(values) / len(values)
    if not found:
        return []
    order = sorted(found, key=lambda label: found[label])
    texts = [f"{100 * found[label]:.1f} points with {label}" for label in order[:4]]
    more = f" ({len(order) - 4} others forget more)" if len(order) > 4 else ""
    return [f"Forgetting, how far a class ends below its best accuracy on average, is {', '.join(texts)}{more}."]


def _text(values: Sequence[float], measure: Measure) -> str:
    found = sample_mean_std(values)
    assert found is not None
    return measure.text(found.mean) if len(values) == 1 else measure.spread_text(found.mean, found.std)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
