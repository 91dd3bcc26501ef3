"""Search: Optuna proposes settings, runs over seeds judge them. Resumable, and the same again with the same seed."""

import itertools
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsol.config.experiment import Experiment
from fedsol.core.randomness import key_for
from fedsol.errors import InputError, RunError
from fedsol.studies.compare import Result, run_variants
from fedsol.studies.grids import Axis, Choice, Range, variant_at
from fedsol.studies.run_many import Outcome
from fedsol.studies.sweep import Point, Sweep, write_tables

if TYPE_CHECKING:
    import optuna

JOURNAL = "search.jsonl"
"""Optuna's own record, in JSON lines."""


def search(
    axes: Sequence[Axis],
    base: Experiment,
    seeds: Sequence[int],
    out: Path,
    trials: int,
    resume: bool = False,
    jobs: int | None = None,
    tell: Callable[[Outcome], None] = lambda _: None,
) -> Sweep:
    """Tries `trials` settings, each with all seeds, for the highest mean final accuracy; TPE proposes them.

    A proposal depends on the base's seed, its number and the results before it: a resumed search makes the ones that an
    uninterrupted one would have made.
    """
    optuna = _optuna()
    if trials < 1:
        raise InputError(f"--search: {trials} is not allowed; it must be 1 or more")
    _check_ends(axes, base)
    journal = out / JOURNAL
    if journal.exists() and not resume:
        raise InputError(f"{out}: holds a search already; resume (--resume) or choose another directory (--out)")
    out.mkdir(parents=True, exist_ok=True)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(journal)))
    study = optuna.create_study(storage=storage, study_name="fedsol", direction="maximize", load_if_exists=True)
    _check_same_axes(study, axes, out)
    results: list[tuple[dict[str, Any], Result]] = []
    while len(results) < trials:
        settings, trial = _next_trial(optuna, study, axes, len(results), base.seed)
        variant = variant_at(settings, base)
        (result,) = run_variants([variant], seeds, out, resume=True, jobs=_jobs(jobs, seeds), tell=tell)
        results.append((settings, result))
        if trial is not None:
            score = result.spread(lambda run: run.final_accuracy)
            failed = score is None or bool(result.failures)
            state = optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE
            study.tell(trial, None if failed or score is None else score["mean"], state)
    points = tuple(Point(settings, result) for settings, result in results)
    found = Sweep(tuple(axis.key for axis in axes), tuple(seeds), points)
    write_tables(found, out)
    return found


def best_point(found: Sweep) -> Point:
    """The settings with the highest mean final accuracy among those of which no run failed."""
    scored = [
        (spread["mean"], point)
        for point in found.points
        if not point.result.failures and (spread := point.result.spread(lambda run: run.final_accuracy))
    ]
    if not scored:
        raise RunError("search: every setting that was tried has a run that failed")
    return max(scored, key=lambda pair: pair[0])[1]


def _next_trial(
    optuna: Any, study: "optuna.Study", axes: Sequence[Axis], number: int, seed: int
) -> tuple[dict[str, Any], "optuna.Trial | None"]:
    """The settings of a trial: those of an earlier search if it has been judged or begun, else a new proposal."""
    known = study.get_trials(deepcopy=False)
    states = optuna.trial.TrialState
    if number < len(known):
        old = known[number]
        settings = {axis.key: old.params[axis.key] for axis in axes if axis.key in old.params}
        if len(settings) == len(axes):
            begun = old.state == states.RUNNING
            return settings, optuna.trial.Trial(study, old._trial_id) if begun else None
        study.tell(old.number, state=states.FAIL)  # killed before it had settings
    study.sampler = optuna.samplers.TPESampler(seed=key_for(seed, "search", number) % 2**32)
    trial = study.ask()
    return {axis.key: _suggest(trial, axis) for axis in axes}, trial


def _suggest(trial: "optuna.Trial", axis: Axis) -> Any:
    if isinstance(axis, Choice):
        return trial.suggest_categorical(axis.key, axis.values)
    if isinstance(axis.low, int) and isinstance(axis.high, int):
        return trial.suggest_int(axis.key, axis.low, axis.high, log=axis.log)
    return trial.suggest_float(axis.key, axis.low, axis.high, log=axis.log)


def _jobs(jobs: int | None, seeds: Sequence[int]) -> int | None:
    return jobs if jobs is None else min(jobs, len(seeds))


def _check_ends(axes: Sequence[Axis], base: Experiment) -> None:
    """Both ends of every range with every value of every list must be allowed, before anything runs."""
    values = [axis.values if isinstance(axis, Choice) else (axis.low, axis.high) for axis in axes]
    for point in itertools.product(*values):
        base.override(dict(zip([axis.key for axis in axes], point, strict=True)))


def _check_same_axes(study: "optuna.Study", axes: Sequence[Axis], out: Path) -> None:
    """A search goes on with what it began with."""
    described = json.loads(json.dumps([_described(axis) for axis in axes]))
    if study.user_attrs.setdefault("axes", described) != described:
        raise InputError(f"{out}: the search began with another --grid: {study.user_attrs['axes']}")
    study.set_user_attr("axes", described)


def _described(axis: Axis) -> list[Any]:
    if isinstance(axis, Range):
        return [axis.key, "log" if axis.log else "range", axis.low, axis.high]
    return [axis.key, "one of", *axis.values]


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise InputError("--search: needs Optuna; install it with: pip install 'fedsol[search]'") from error
    optuna.logging.set_verbosity(logging.WARNING)
    return optuna
