"""What a report shows, in words: the setting, the verdict with its uncertainty, and forgetting."""

from collections.abc import Sequence
from statistics import fmean

from fedsol.analysis.verdict import Summary, compared, summarize, verdict
from fedsol.runs.groups import Group
from fedsol.runs.run import Run

BASELINE = "fedavg"
MOST = 4
"""Methods in words."""


def headline(runs: Sequence[Run], groups: Sequence[Group]) -> list[str]:
    """Return some sentences; none without a result.

    Methods are compared with FedAvg, or else with the last one; what each reached is in the table.
    """
    if not runs:
        return []
    measure = runs[0].primary
    methods = [_summary(runs, group) for group in groups]
    known = [method for method in methods if method.finals]
    if not known:
        return []
    sign = -1 if measure.higher_is_better else 1
    order = sorted(known, key=lambda method: sign * fmean(method.finals.values()))
    base = next((method for method in order if method.label.split()[0] == BASELINE), order[-1])
    shown = [base, *[method for method in order if method is not base][: MOST - 1]]
    more = [f"{len(order) - MOST} other methods are in the table."] if len(order) > MOST else []
    found = [sentence for method in shown[1:] if (sentence := compared(base, method, measure))]
    return [_setting(runs, groups), *(found or verdict(shown, measure)), *more]


def _summary(runs: Sequence[Run], group: Group) -> Summary:
    key = f"test_{runs[group.runs[0]].primary.key}"
    return summarize(group.label, {runs[number].seed: runs[number].rows for number in group.runs}, key)


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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
