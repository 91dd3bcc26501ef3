"""Search: Optuna proposes settings, runs over seeds score them. A search is resumable and reproducible."""

import itertools
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsol.config.experiment import Experiment
from fedsol.core.randomness import key_for
from fedsol.errors import InputError, RunError
from fedsol.runs.run import Run
from fedsol.studies.compare import Result, run_variants
from fedsol.studies.grid import Axis, Choice, Range, variant_at
from fedsol.studies.run_many import Study
from fedsol.studies.sweep import Sweep, write_sweep

if TYPE_CHECKING:
    import optuna

JOURNAL = "search.jsonl"
"""Optuna's own record, in JSON lines."""


def search(axes: Sequence[Axis], base: Experiment, study: Study, trials: int) -> Sweep:
    """Try `trials` settings, each with all seeds, for the best mean of `optimized`; TPE proposes them.

    A proposal depends on the base's seed, its number and the results before it, so a resumed search makes the same
    proposals as an uninterrupted one.
    """
    optuna = _optuna()
    _check_ends(axes, base)
    journal = study.out / JOURNAL
    if journal.exists() and not study.resume:
        raise InputError(f"{study.out}: already has a search; resume it (resume), or choose another directory (out)")
    study.out.mkdir(parents=True, exist_ok=True)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(journal)))
    direction = "maximize" if base.task.primary.higher_is_better else "minimize"
    record = optuna.create_study(storage=storage, study_name="fedsol", direction=direction, load_if_exists=True)
    _check_same_axes(record, axes, study.out)
    jobs = None if study.jobs is None else min(study.jobs, len(study.seeds))
    each = replace(study, resume=True, jobs=jobs)
    results: list[Result] = []
    while len(results) < trials:
        settings, trial = _next_trial(optuna, record, axes, len(results), base.seed)
        (result,) = run_variants([variant_at(settings, base)], each)
        results.append(result)
        if trial is not None:
            score = None if result.failures else result.spread(optimized)
            states = optuna.trial.TrialState
            record.tell(trial, score["mean"] if score else None, states.COMPLETE if score else states.FAIL)
    return write_sweep(axes, results, study)


def optimized(run: Run) -> float | None:
    """Return what a search optimizes: the best result by validation; without validation, the final test result.

    If no model is tested there, as clients keep weights, that is the final result on their hold-out sets.
    """
    if run.selection.has_validation:
        return run.best_validation
    return run.final_result if run.results else run.final_held_out


def best_result(found: Sweep) -> Result:
    """Return the settings with the best mean of `optimized` among those without a failed run."""
    scored = [
        (spread["mean"], result)
        for result in found.results
        if not result.failures and (spread := result.spread(optimized))
    ]
    if not scored:
        raise RunError("search: a run failed with every setting")
    best = scored[0][1].primary.best(mean for mean, _ in scored)
    return next(result for mean, result in scored if mean == best)


def _next_trial(
    optuna: Any, study: "optuna.Study", axes: Sequence[Axis], number: int, seed: int
) -> tuple[dict[str, Any], "optuna.Trial | None"]:
    """Return the settings of a trial: recorded ones if it was scored or started before, else a new proposal."""
    known = study.get_trials(deepcopy=False)
    states = optuna.trial.TrialState
    if number < len(known):
        old = known[number]
        settings = {axis.key: old.params[axis.key] for axis in axes if axis.key in old.params}
        if len(settings) == len(axes):
            started = old.state == states.RUNNING
            return settings, optuna.trial.Trial(study, old._trial_id) if started else None
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


def _check_ends(axes: Sequence[Axis], base: Experiment) -> None:
    """Check both ends of every range with every value of every list, before anything runs."""
    values = [axis.values if isinstance(axis, Choice) else (axis.low, axis.high) for axis in axes]
    for point in itertools.product(*values):
        base.override(dict(zip([axis.key for axis in axes], point, strict=True)))


def _check_same_axes(study: "optuna.Study", axes: Sequence[Axis], out: Path) -> None:
    """Refuse to resume a search with a different grid."""
    described = json.loads(json.dumps([_describe(axis) for axis in axes]))
    recorded = study.user_attrs.get("axes", described)
    if recorded != described:
        raise InputError(f"--grid: must be that of the search in {out}: {recorded} (got {described})")
    study.set_user_attr("axes", described)


def _describe(axis: Axis) -> list[Any]:
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
