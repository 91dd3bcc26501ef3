"""Which method for my data? A race by successive halving over rounds and seeds, on validation data alone.

The budget is work, counted in rounds of training. A time is translated into work once, by the first rounds of every
method, and recorded: a resumed or repeated race then trains the same rounds, and ends with the same ranking.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedsol.config.catalog import GROUPS
from fedsol.config.experiment import Experiment
from fedsol.core.files import make_directory, read_json_object, write_atomically
from fedsol.core.statistics import known_mean
from fedsol.errors import InputError, RunError
from fedsol.runs.directory import RunDirectory
from fedsol.runs.rows import Row
from fedsol.runs.run import Run
from fedsol.runs.selection import Selection
from fedsol.studies.variants import Variant, algorithm_changes, check_distinct
from fedsol.training.callbacks import Callback, RoundResult, StopTraining
from fedsol.training.loop import train

RECORD = "choice.json"
PARTS_OF_METHODS = {"fedsol-ablation", "perturbed"}
"""Names that are for taking a method apart, not for using one."""
WELL_KNOWN = ("fedavg", "fedsol", "fedntd", "fedprox", "scaffold", "fedsam", "feddyn", "moon")
"""The methods that race first: a small budget is for these."""
VALIDATION = 0.1
"""The share of the training samples to validate on, unless the experiment has a validation set."""
TRIAL_ROUNDS = 2
"""Rounds of every method by which a time is translated into work; they are part of the race."""
FIRST_SEEDS, MOST_SEEDS = 2, 10
LEAST_ROUNDS = 5
"""Rounds that tell anything about a method; with fewer in the first part, fewer methods race."""
LAST_ROUNDS = 3
"""The result of a run is the mean of its last evaluated rounds: a single one may be luck."""
RACING = 0.9
"""The share of the work that the race gets; the rest is for clients that train alone."""
UNITS = {"rounds": None, "s": 1, "sec": 1, "min": 60, "h": 3600}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Budget:
    """An amount of time in seconds, or of work in rounds."""

    text: str
    amount: float
    is_work: bool


@dataclass(frozen=True)
class Rung:
    """A part of the race: how many of the best methods train how many seeds, and up to which round."""

    methods: int
    seeds: int
    rounds: int


@dataclass(frozen=True)
class Race:
    """The results of every rung: for each method, the validation result of each seed; None if the run failed."""

    rungs: tuple[Rung, ...]
    results: tuple[dict[str, tuple[float | None, ...]], ...]


def parse_budget(text: str) -> Budget:
    """Parse `20min`, `90s`, `1.5h` or `600rounds`."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", text)
    if not found or found[2] not in UNITS or not float(found[1]) > 0:
        raise InputError(f"--budget: must be a time or an amount of work, such as 20min or 600rounds (got {text!r})")
    unit = UNITS[found[2]]
    return Budget(text.strip(), float(found[1]) * (unit or 1), unit is None)


def candidates(base: Experiment, names: Sequence[str]) -> list[Variant]:
    """Return the methods to race: those named, or every one that makes a global model and fits the experiment.

    The well-known ones come first, then the others by age.
    """
    if names:
        variants = [Variant(name, base.override(algorithm_changes(name))) for name in names]
        check_distinct("--algorithm", variants)
        return variants
    others = [
        (year or 0, name) for group, known in GROUPS.items() if group != "personal" for name, year in known.items()
    ]
    order = dict.fromkeys([*WELL_KNOWN, *(name for _, name in sorted(others))])
    found = []
    for name in order:
        if name in PARTS_OF_METHODS:
            continue
        try:
            found.append(Variant(name, base.override({"algorithm.name": name})))
        except InputError:  # it does not fit the task, the optimizer or the aggregation
            continue
    return found


def field_for(variants: Sequence[Variant], work: int, rounds: int) -> list[Variant]:
    """Return the first methods, as many as the budget gives enough rounds to."""
    for count in range(len(variants), 2, -1):
        share = RACING * work / (len(_halvings(count)) * count * FIRST_SEEDS)
        if share >= min(LEAST_ROUNDS, rounds):
            return list(variants[:count])
    return list(variants[:2])


def with_validation(base: Experiment) -> Experiment:
    """Return the experiment with a validation set, evaluated in every round, and without an early stop."""
    changes: dict[str, Any] = {
        "server.evaluate_every": 1,
        "server.evaluate_clients": None,
        "server.patience": None,
        "server.stop_at": None,
    }
    if not base.data.validation:
        changes["data.validation"] = VALIDATION
    return base.override(changes)


def plan_race(methods: int, work: int, rounds: int) -> list[Rung]:
    """Return the rungs: half of the methods each time, equal work for each rung, more seeds and more rounds.

    `work` is that of the whole budget. Two methods remain for the last rung (or as many as there are, if fewer). What a
    method has done before counts.
    """
    counts = _halvings(methods)
    rungs: list[Rung] = []
    share = RACING * work / len(counts)
    done = 0.0  # by each method
    for number, count in enumerate(counts):
        done += share / count
        before = rungs[-1] if rungs else Rung(0, FIRST_SEEDS, 0)
        seeds = before.seeds if number == 0 or done / (before.seeds + 1) < before.rounds else before.seeds + 1
        seeds = min(MOST_SEEDS, max(seeds, int(done // rounds)))
        rungs.append(Rung(count, seeds, min(rounds, int(done // seeds))))
    if rungs[0].rounds < TRIAL_ROUNDS:
        least = math.ceil(TRIAL_ROUNDS * FIRST_SEEDS * methods * len(counts) / RACING)
        raise InputError(
            f"--budget: is too small for {methods} methods: {work} rounds in all, and at least {least} are required; "
            "name fewer methods (--algorithm), or set a larger budget"
        )
    return rungs


def _halvings(methods: int) -> list[int]:
    counts = [methods]
    while counts[-1] > 2:
        counts.append(max(2, math.ceil(counts[-1] / 2)))
    return counts


@dataclass(frozen=True)
class Place:
    """Where a race runs, whether it is resumed, and what is told of it."""

    out: Path
    resume: bool
    say: Say


class Racer:
    """Trains the runs of a race, each in its own directory, and reads their validation results."""

    def __init__(self, variants: Sequence[Variant], place: Place) -> None:
        self.variants = {variant.label: variant for variant in variants}
        self.selection = Selection(variants[0].experiment.task.primary, "validation")
        self._out, self._say = place.out, place.say

    def race(self, rungs: Sequence[Rung]) -> Race:
        """Run every rung; the better half by the mean over seeds continues."""
        left = list(self.variants)
        found = []
        for number, rung in enumerate(rungs, start=1):
            self._say(
                f"Part {number} of {len(rungs)}: {rung.methods} methods, {rung.seeds} seeds, {rung.rounds} rounds"
            )
            results = {}
            for name in left[: rung.methods]:
                results[name] = tuple(self.result(name, seed, rung.rounds) for seed in range(rung.seeds))
                self._say(f"  {name}: {self._text(results[name])}")
            found.append(results)
            left = self.ranked(results)
        return Race(tuple(rungs), tuple(found))

    def ranked(self, results: dict[str, tuple[float | None, ...]]) -> list[str]:
        """Return the methods from best to worst by their mean; those with a failed run come last."""
        sign = -1 if self.selection.measure.higher_is_better else 1
        means = {name: None if None in values else known_mean(values) for name, values in results.items()}
        return sorted(results, key=lambda name: math.inf if (mean := means[name]) is None else sign * mean)

    def result(self, name: str, seed: int, rounds: int) -> float | None:
        """Return the validation result of a run after this many rounds, trained now as far as it is missing."""
        run = self.run(name, seed, rounds)
        return None if run is None else validation_result(run.rows[:rounds], self.selection)

    def run(self, name: str, seed: int, rounds: int) -> Run | None:
        """Return a run with at least this many rounds; None if training failed."""
        experiment = self.variants[name].experiment.override({"seed": seed})
        path = self.path(name, seed)
        directory = RunDirectory(path)
        if directory.exists and len(directory.read_rows()) >= rounds:
            return Run.load(path)
        try:
            return train(experiment, [_StopAfter(rounds)], path, resume=directory.exists)
        except RunError as error:
            self._say(f"  {name} seed {seed}: {error}")
            return None

    def path(self, name: str, seed: int) -> Path:
        """Return the directory of a run."""
        return self._out / self.variants[name].folder / f"seed-{seed}"

    def seconds_per_round(self) -> float:
        """Train the first rounds of every method, and return how long one takes on average."""
        found = []
        for name in self.variants:
            self._say(f"  {name}: {TRIAL_ROUNDS} rounds to measure time")
            run = self.run(name, 0, TRIAL_ROUNDS)
            found.append(run.rows[TRIAL_ROUNDS - 1]["seconds"] if run else None)
        mean = known_mean(found)
        if mean is None:
            raise RunError("choose: every method failed in its first rounds")
        return mean

    def _text(self, values: Sequence[float | None]) -> str:
        measure = self.selection.measure
        return "failed" if None in values else f"{measure.title} {measure.text(known_mean(values))}"


def validation_result(rows: Sequence[Row], selection: Selection) -> float | None:
    """Return the mean result of the last rounds on the validation set. The test set is not looked at."""
    return known_mean([value for _, value in selection.results(rows)][-LAST_ROUNDS:])


class _StopAfter(Callback):
    needs_updates = False

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def round_finished(self, result: RoundResult) -> None:
        if result.round >= self._rounds:
            raise StopTraining


@dataclass(frozen=True)
class Record:
    """What a race is, as `choice.json` keeps it: the same record gives the same ranking."""

    budget: str
    requested: list[str]
    experiment: str
    work: int
    """Rounds of training in all."""
    seconds_per_round: float | None
    """Of the methods on average, as measured once; None if the budget was work."""
    methods: list[str]


def open_race(request: Budget, base: Experiment, names: Sequence[str], study: Place) -> tuple[Record, Racer]:
    """Return the record of a race and what trains its runs: as recorded, or measured now and written."""
    path, variants = study.out / RECORD, candidates(base, names)
    wanted = Record(request.text, list(names), base.to_toml(), 0, None, [])
    if path.is_file():
        if not study.resume:
            raise InputError(
                f"{study.out}: already has a race; resume it (--resume), or choose another directory (--out)"
            )
        saved = read_json_object(path)
        asked = ("budget", "requested", "experiment")
        if different := [key for key in asked if saved.get(key) != getattr(wanted, key)]:
            raise InputError(f"{study.out}: the race started with a different {' and '.join(different)}")
        record = Record(**saved)
        return record, Racer([one for one in variants if one.label in record.methods], study)
    seconds = None
    if request.is_work:
        work = int(request.amount)
    else:
        seconds = Racer(variants[: len(WELL_KNOWN)], study).seconds_per_round()
        work = int(request.amount / seconds)
    assert base.rounds is not None
    racing = variants if names else field_for(variants, work, base.rounds)
    rounded = None if seconds is None else round(seconds, 4)
    record = replace(wanted, work=work, seconds_per_round=rounded, methods=[one.label for one in racing])
    plan_race(len(racing), work, base.rounds)  # refuses a budget that is too small, before it is recorded
    make_directory(study.out)
    write_atomically(path, json.dumps(asdict(record), indent=2) + "\n")
    return record, Racer(racing, study)
