"""Which runs differ by their seed alone, and what to call them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fedsol.report.collect import FoundRun


@dataclass(frozen=True)
class Group:
    """Runs of one configuration, one per seed."""

    configuration: dict[str, Any]
    runs: list[int] = field(default_factory=list)
    """Numbers of its runs."""


def group_runs(runs: Sequence[FoundRun]) -> list[Group]:
    """Groups in the order of their first runs. A seed that comes twice makes another group: it is no new evidence."""
    groups: dict[tuple[str, int], Group] = {}
    seen: dict[tuple[str, int], int] = {}
    for number, run in enumerate(runs):
        key = json.dumps(run.configuration, sort_keys=True, default=str)
        times = seen[(key, run.seed)] = seen.get((key, run.seed), -1) + 1
        groups.setdefault((key, times), Group(run.configuration)).runs.append(number)
    return list(groups.values())


def differences(groups: Sequence[Group]) -> dict[str, list[Any]]:
    """The keys in which groups differ, with the value of each (None where it has none)."""
    keys = sorted({key for group in groups for key in group.configuration})
    values = {key: [group.configuration.get(key) for group in groups] for key in keys}
    return {key: column for key, column in values.items() if any(value != column[0] for value in column)}


def label_groups(groups: Sequence[Group]) -> list[str]:
    """The algorithm, and the settings that tell it from others; those of the algorithm only where it comes twice."""
    different = differences(groups)
    algorithms = [str(group.configuration.get("algorithm.name", "?")) for group in groups]
    labels = []
    for number, algorithm in enumerate(algorithms):
        alike = [other for other, name in enumerate(algorithms) if name == algorithm]
        parts = []
        for key, column in different.items():
            own = key.startswith("algorithm.")
            compared = alike if own else range(len(groups))
            differs = key != "algorithm.name" and any(column[other] != column[number] for other in compared)
            if differs and column[number] is not None:
                parts.append(f"{key.removeprefix('algorithm.')}={as_text(column[number])}")
        labels.append(f"{algorithm} {', '.join(parts)}".strip())
    return [_numbered(labels, number) for number in range(len(labels))]


def as_text(value: Any) -> str:
    """A setting as it stands in a label or a table."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _numbered(labels: Sequence[str], number: int) -> str:
    before = labels[:number].count(labels[number])
    return f"{labels[number]} ({before + 1})" if before else labels[number]
