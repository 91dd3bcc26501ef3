"""Group runs that differ only in their seed, and label the groups by what differs."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsol.config.overrides import KEYS_WITHOUT_EFFECT, as_text
from fedsol.runs.run import Run


@dataclass(frozen=True)
class Group:
    """Runs of one configuration, one per seed."""

    label: str
    """The algorithm, and the settings in which it differs from other groups."""
    configuration: dict[str, Any]
    runs: list[int]
    """Their positions in the list of all runs."""


def configuration(run: Run) -> dict[str, Any]:
    """Return everything that a result depends on except the seed, with dotted keys."""
    ignored = {*KEYS_WITHOUT_EFFECT, "seed"}
    settings = {key: value for key, value in run.settings.items() if key not in ignored}
    return {**settings, "data.sha256": str(run.environment.get("data_sha256", ""))[:12]}


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group runs, in order of first appearance. A repeated seed starts another group: it adds no evidence."""
    found: dict[tuple[str, int], list[int]] = {}
    repetitions: Counter[tuple[str, int]] = Counter()
    for number, run in enumerate(runs):
        key = json.dumps(configuration(run), sort_keys=True, default=str)
        found.setdefault((key, repetitions[key, run.seed]), []).append(number)
        repetitions[key, run.seed] += 1
    configurations = [configuration(runs[numbers[0]]) for numbers in found.values()]
    labels = label_by_difference(configurations)
    return [Group(*parts) for parts in zip(labels, configurations, found.values(), strict=True)]


def differences(configurations: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the keys in which configurations differ, with each configuration's value (None if missing)."""
    keys = sorted({key for one in configurations for key in one})
    values = {key: [one.get(key) for one in configurations] for key in keys}
    return {key: column for key, column in values.items() if any(value != column[0] for value in column)}


def label_by_difference(configurations: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return `fedsol rho=1, client.lr=0.1`; the algorithm's own settings only where it occurs twice."""
    different = differences(configurations)
    algorithms = [str(one.get("algorithm.name", "?")) for one in configurations]
    labels: list[str] = []
    for number, algorithm in enumerate(algorithms):
        parts = []
        for key, column in different.items():
            own = key.startswith("algorithm.")
            rivals = {
                str(value) for name, value in zip(algorithms, column, strict=True) if not own or name == algorithm
            }
            if key != "algorithm.name" and len(rivals) > 1 and column[number] is not None:
                parts.append(f"{key.removeprefix('algorithm.')}={as_text(column[number])}")
        labels.append(f"{algorithm} {', '.join(parts)}".strip())
    return [
        f"{label} ({before + 1})" if (before := labels[:number].count(label)) else label
        for number, label in enumerate(labels)
    ]
