"""personalize(): every client's own model from the final global model of a run."""

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsol.core.interrupts import Interrupts
from fedsol.core.messages import Missing
from fedsol.core.randomness import one_torch_thread
from fedsol.core.weights import Weights
from fedsol.engines import make_engine
from fedsol.engines.base import Engine
from fedsol.errors import InputError, RunError
from fedsol.federation.federation import Federation, build_federation
from fedsol.federation.personal import PersonalResult, PersonalSettings, resolve_settings
from fedsol.federation.tasks import Personalize
from fedsol.personalization.results import PersonalDirectory, describe
from fedsol.personalization.statistics import summary_of
from fedsol.runs.directory import RunDirectory
from fedsol.runs.run import Run

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Personalized:
    """What came of a personalisation."""

    description: dict[str, Any]
    """What was asked, and of which federation."""
    results: list[PersonalResult]
    """One per client, by id."""
    directory: Path | None = None

    @property
    def summary(self) -> dict[str, Any]:
        """Mean, deviation and outer deciles over the clients, before and after."""
        return summary_of(self.results)


@dataclass(frozen=True)
class Watch:
    """Sees how far it is; nothing here may change a result."""

    started: Callable[[int, int], None] = lambda done, clients: None
    finished: Callable[[PersonalResult], None] = lambda result: None


def personalize(
    run: Run | str | Path,
    method: str | None = None,
    changes: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    where: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
    engine: Callable[[Federation], Engine] | None = None,
) -> Personalized:
    """Personalises the last global model of a run for every client.

    `method` is `finetune`, `knn-per` or `local-only` (default: the algorithm's own), `changes` are other
    `PersonalSettings`, `where` keys of the experiment that change no result (`engine.workers`, `data.root`). With `out`
    the results are kept there client by client, and `resume` goes on with those that are missing, to the same end as if
    it had never stopped.
    """
    if out is None and resume:
        raise InputError("resume: requires the directory of the results (out)")
    directory = None if out is None else PersonalDirectory(Path(out))
    if directory and directory.exists and not resume:
        raise InputError(f"{out}: holds results already; resume (--resume) or choose another directory (--out)")
    if out is not None:
        check_no_run(Path(out))
    with one_torch_thread():
        federation, weights, rounds = _load(run, where or {})
        settings = resolve_settings(federation, rounds, method, changes)
        description = describe(federation, weights, settings)
        with directory.locked() if directory else nullcontext():
            if directory:
                directory.begin(description)
            opened = engine or (lambda each: make_engine(each, each.clients))
            results = _all_clients(federation, weights, settings, directory, watch or Watch(), opened)
    return Personalized(description, results, directory.path if directory else None)


def check_no_run(out: Path) -> None:
    """Refuses the directory of a run as a place for results: both have files of the same names."""
    if RunDirectory(out).exists:
        raise InputError(f"{out}: is the directory of a run, whose files would be replaced; choose another (--out)")


def _load(run: Run | str | Path, where: Mapping[str, Any]) -> tuple[Federation, Weights, int]:
    """The run's federation, its last global weights, and the rounds that they have seen."""
    if isinstance(run, Run):
        return build_federation(run.experiment.override(where)), run.weights, len(run.rows)
    folder = RunDirectory(Path(run))
    federation = build_federation(folder.read_experiment().override(where))
    folder.check_same_run(federation)
    checkpoint = folder.checkpoints.newest()
    if checkpoint is None:
        raise no_model(folder)
    if checkpoint.round != federation.experiment.rounds:
        log.warning("%s: only %d of %s rounds are done", run, checkpoint.round, federation.experiment.rounds)
    return federation, checkpoint.server.weights, checkpoint.round


def no_model(folder: RunDirectory) -> InputError:
    """The error for a run whose global model is not there."""
    return InputError(f"{folder.path}: has no global model yet (no checkpoint that is whole)")


def _all_clients(
    federation: Federation,
    weights: Weights,
    settings: PersonalSettings,
    directory: PersonalDirectory | None,
    watch: Watch,
    engine: Callable[[Federation], Engine],
) -> list[PersonalResult]:
    """The results that are there already and those of the other clients, which are kept as they come."""
    found = {result.client: result for result in (directory.read_results() if directory else [])}
    waiting = [client for client in range(federation.clients) if client not in found]
    watch.started(len(found), federation.clients)
    interrupts = Interrupts()
    with interrupts, engine(federation) if waiting else nullcontext() as opened:
        answers = opened.run([Personalize(weights, client, settings) for client in waiting]) if opened else iter(())
        while True:
            with interrupts.allowed():
                _, result = next(answers, (None, None))
            if result is None:
                break
            if isinstance(result, Missing):
                log.warning("no personal model of client %d: %s", result.client, result.reason)
                continue
            if directory:
                directory.append(result)
            found[result.client] = result
            watch.finished(result)
    if missing := [client for client in waiting if client not in found]:
        raise RunError(f"no result of clients {missing}; what came is kept: go on with --resume")
    return [found[client] for client in sorted(found)]
