"""Group runs that differ by their seed alone, and label the groups by what differs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fedsol.config.overrides import KEYS_WITHOUT_EFFECT
from fedsol.runs.run import Run


@dataclass(frozen=True)
class Group:
    """Runs of one configuration, one per seed."""

    configuration: dict[str, Any]
    runs: list[int] = field(default_factory=list)
    """Their positions in the list of all runs."""


def configuration(run: Run) -> dict[str, Any]:
    """Return everything that a result depends on except the seed, with dotted keys."""
    ignored = {*KEYS_WITHOUT_EFFECT, "seed"}
    settings = {key: value for key, value in run.settings.items() if key not in ignored}
    return {**settings, "data.sha256": str(run.environment.get("data_sha256", ""))[:12]}


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group runs in the order of their first ones. A repeated seed starts another group: it is no new evidence."""
    groups: dict[tuple[str, int], Group] = {}
    seen: dict[tuple[str, int], int] = {}
    for number, run in enumerate(runs):
        settings = configuration(run)
        key = json.dumps(settings, sort_keys=True, default=str)
        times = seen[(key, run.seed)] = seen.get((key, run.seed), -1) + 1
        groups.setdefault((key, times), Group(settings)).runs.append(number)
    return list(groups.values())


def differences(groups: Sequence[Group]) -> dict[str, list[Any]]:
    """Return the keys in which groups differ, with the value of each group (None if it has none)."""
    keys = sorted({key for group in groups for key in group.configuration})
    values = {key: [group.configuration.get(key) for group in groups] for key in keys}
    return {key: column for key, column in values.items() if any(value != column[0] for value in column)}


def label_groups(groups: Sequence[Group]) -> list[str]:
    """Label groups by algorithm and differing settings; those of the algorithm only where it occurs twice."""
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
    """Return a setting as a label or a table shows it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _numbered(labels: Sequence[str], number: int) -> str:
    before = labels[:number].count(labels[number])
    return f"{labels[number]} ({before + 1})" if before else labels[number]
