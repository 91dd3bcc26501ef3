"""A leaderboard: methods by setting, over seeds, with what they gain over FedAvg."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import accumulate
from statistics import fmean
from typing import Any, NamedTuple

from fedsol.config.algorithm import find_algorithm
from fedsol.config.catalog import ALGORITHMS
from fedsol.config.experiment import SHORT, Experiment
from fedsol.config.overrides import KEYS_WITHOUT_EFFECT, as_text, flatten
from fedsol.config.privacy import privacy_is_on
from fedsol.config.tables import DataSettings
from fedsol.config.task import Measure
from fedsol.core.statistics import MeanStd, known_mean, sample_mean_std
from fedsol.runs.groups import differences, label_by_difference
from fedsol.runs.run import Run

BASELINE = "fedavg"
PRECISION = "engine.precision"
WATCHED = {"server.evaluate_every", "server.evaluate_last", "server.evaluate_batch", "server.evaluate_clients"}
"""How often a run was tested says nothing about its setting."""

CONFIDENCE = 0.95
RESAMPLES = 9999


class Gain(NamedTuple):
    """A mean difference over seeds; `low` and `high` bound it. With one seed there is no interval."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Reached:
    """When runs first had a result at least as good as the target: means over those that had it."""

    runs: int
    rounds: float | None
    bytes: float | None


@dataclass(frozen=True)
class Standing:
    """One method in one setting, in one precision, over its seeds."""

    method: str
    precision: str
    runs: tuple[Run, ...]
    result: MeanStd | None
    gain: Gain | None
    """Over FedAvg, positive if better; None without runs of FedAvg with the same seeds and precision."""
    reached: Reached | None
    worst_class: float | None

    @property
    def seeds(self) -> list[int]:
        """The seeds of its runs."""
        return [run.seed for run in self.runs]


@dataclass(frozen=True)
class Board:
    """The methods of one setting: the same data, partition, model, training and number of rounds."""

    setting: str
    measure: Measure
    target: float | None
    standings: tuple[Standing, ...]


@dataclass(frozen=True)
class Rules:
    """How results are compared."""

    last: int = 1
    """A run's result is the mean of this many evaluated rounds at its end."""
    target: float | None = None
    """The result to be reached; by default FedAvg's."""

    def result(self, run: Run) -> float | None:
        """Return the result of a run."""
        return known_mean(value for _, value in run.results[-self.last :])


def leaderboards(runs: Sequence[Run], rules: Rules) -> list[Board]:
    """Return one board for each setting, in order of first appearance."""
    settings: dict[str, list[Run]] = {}
    for run in runs:
        settings.setdefault(_text(_setting(run)), []).append(run)
    titles = _titles([_setting(found[0]) for found in settings.values()])
    methods = _methods(runs)
    return [_board(title, found, methods, rules) for title, found in zip(titles, settings.values(), strict=True)]


def paired_gain(ours: Sequence[float], baseline: Sequence[float]) -> Gain:
    """Return the mean difference of pairs, and the percentile interval of a paired bootstrap (scipy's)."""
    differences = [one - other for one, other in zip(ours, baseline, strict=True)]
    if len(differences) < 2:
        return Gain(fmean(differences))
    import numpy as np
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.array(ours), np.array(baseline)),
        lambda one, other, axis: (one - other).mean(axis=axis),
        paired=True,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return Gain(fmean(differences), *map(float, found.confidence_interval))


def _board(title: str, runs: Sequence[Run], methods: Mapping[int, str], rules: Rules) -> Board:
    measure = runs[0].primary
    groups: dict[tuple[str, str, int], list[Run]] = {}
    taken: Counter[tuple[str, str, int]] = Counter()
    for run in runs:
        name = (methods[id(run)], precision_of(run))
        repetition = taken[(*name, run.seed)]  # a repeated seed adds no evidence: it has a row of its own
        taken[(*name, run.seed)] += 1
        groups.setdefault((*name, repetition), []).append(run)
    baselines = {key[1]: found for key, found in reversed(groups.items()) if _is_baseline(found[0])}
    target = rules.target
    if target is None and baselines:
        target = known_mean(rules.result(run) for run in next(reversed(baselines.values())))
    standings = tuple(
        Standing(
            f"{method} ({repetition + 1})" if repetition else method,
            precision,
            tuple(found),
            sample_mean_std(rules.result(run) for run in found),
            _gain(found, baselines.get(precision, []), rules, measure),
            None if target is None else _reached(found, target, measure),
            known_mean(_worst_class(run) for run in found),
        )
        for (method, precision, repetition), found in groups.items()
    )
    return Board(title, measure, target, standings)


def _gain(runs: Sequence[Run], baseline: Sequence[Run], rules: Rules, measure: Measure) -> Gain | None:
    if _is_baseline(runs[0]):
        return None
    theirs = {run.seed: rules.result(run) for run in baseline}
    pairs = [(rules.result(run), theirs.get(run.seed)) for run in runs]
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    if not known:
        return None
    ours, others = [one for one, _ in known], [other for _, other in known]
    return paired_gain(ours, others) if measure.higher_is_better else paired_gain(others, ours)


def _reached(runs: Iterable[Run], target: float, measure: Measure) -> Reached:
    found = []
    for run in runs:
        number = next((number for number, value in run.results if not measure.better(target, value)), None)
        if number is not None:
            sent = list(accumulate(row["bytes_up"] + row["bytes_down"] for row in run.rows))
            found.append((number, sent[number - 1]))
    rounds, sizes = [number for number, _ in found], [size for _, size in found]
    return Reached(len(found), known_mean(rounds), known_mean(sizes))


def _worst_class(run: Run) -> float | None:
    tested = [row["class_accuracy"] for row in run.rows if row.get("class_accuracy")]
    return min((value for value in tested[-1] or () if value is not None), default=None) if tested else None


def _is_baseline(run: Run) -> bool:
    return run.settings.get("algorithm.name") == BASELINE


def precision_of(run: Run) -> str:
    """Return the number format of a run's local steps."""
    return str(run.settings.get(PRECISION, "float32"))


def _setting(run: Run) -> dict[str, Any]:
    """Return what methods share in a fair comparison, with dotted keys."""
    ignored = {*KEYS_WITHOUT_EFFECT, *WATCHED, PRECISION, "seed"}
    settings = {**_defaults(), **run.settings}
    privacy = {key.removeprefix("privacy."): settings[key] for key in settings if key.startswith("privacy.")}
    tables = ("algorithm.",) if privacy_is_on(privacy) else ("algorithm.", "privacy.")
    kept = {key: value for key, value in settings.items() if key not in ignored and not key.startswith(tables)}
    rounds = settings.get("rounds") if run.stopped else len(run.rows)
    return {**kept, "rounds": rounds, "data.sha256": str(run.environment.get("data_sha256", ""))[:12]}


@cache
def _defaults() -> dict[str, Any]:
    """Return the values of keys that runs of earlier versions do not have."""
    return flatten(Experiment().model_dump(exclude_none=True))


def _methods(runs: Sequence[Run]) -> dict[int, str]:
    """Return each run's method: its algorithm, and the settings in which others of that name differ."""
    algorithms = [_algorithm(run) for run in runs]
    distinct = {_text(algorithm): algorithm for algorithm in algorithms}
    labels = dict(zip(distinct, label_by_difference([*distinct.values()]), strict=True))
    return {id(run): labels[_text(algorithm)] for run, algorithm in zip(runs, algorithms, strict=True)}


def _algorithm(run: Run) -> dict[str, Any]:
    found = {key: value for key, value in run.settings.items() if key.startswith("algorithm.")}
    name = str(found.get("algorithm.name", "?"))
    if name not in ALGORITHMS:
        return found
    return {**{f"algorithm.{field.name}": field.default for field in fields(find_algorithm(name))}, **found}


def _titles(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the data and the number of rounds of each setting, and where it differs from others."""
    hidden = {"data.name", "data.sha256", "rounds", *(f"data.partition.{key}" for key in ("kind", "alpha", "shards"))}
    different = {key: column for key, column in differences(settings).items() if key not in hidden}
    titles: list[str] = []
    for number, setting in enumerate(settings):
        name = DataSettings(name=str(setting.get("data.name", "?"))).short_name
        parts = [
            f"{_short(key)}={as_text(column[number])}"
            for key, column in different.items()
            if column[number] is not None
        ]
        titles.append(", ".join([name, _partition(setting), f"{setting['rounds']} rounds", *parts]))
    return [
        f"{title} ({before + 1})" if (before := titles[:number].count(title)) else title
        for number, title in enumerate(titles)
    ]


def _short(key: str) -> str:
    """Return the end of a key; the table of one such as `model.name`, whose end says nothing."""
    table, _, last = key.rpartition(".")
    return table if SHORT.get(table) == last else last


def _partition(setting: Mapping[str, Any]) -> str:
    kind = str(setting.get("data.partition.kind"))
    level = {"dirichlet": "alpha", "dirichlet-client": "alpha", "sharding": "shards"}.get(kind)
    return f"{kind} {setting.get(f'data.partition.{level}')}" if level else kind


def _text(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, default=str)
