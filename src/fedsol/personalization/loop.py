"""personalize(): make every client's own model from the final global model of a run."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
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
from fedsol.federation.personal import PersonalResult, resolve_settings
from fedsol.federation.tasks import Personalize
from fedsol.personalization.results import PersonalDirectory, describe
from fedsol.personalization.statistics import summary_of
from fedsol.runs.directory import RunDirectory
from fedsol.runs.run import Run

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Personalized:
    """The result of a personalization."""

    description: dict[str, Any]
    """What was requested, and for which federation."""
    results: list[PersonalResult]
    """One per client, by id."""
    directory: Path | None = None

    @property
    def summary(self) -> dict[str, Any]:
        """Mean, deviation and outer deciles over the clients, before and after."""
        return summary_of(self.results, unseen=self.description.get("unseen", ()))


def personalize(
    run: Run | str | Path,
    method: str | None = None,
    changes: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    where: Mapping[str, Any] | None = None,
) -> Personalized:
    """Personalize the last global model of a run for every client.

    `method` is `finetune`, `ditto`, `knn-per` or `local-only` (default: the algorithm's own), `changes` are other
    `PersonalSettings`, `where` keys of the experiment that change no result (`engine.workers`, `data.root`). With `out`
    the results are saved there client by client, and `resume` continues with the missing ones, to the same end
    as if it had never stopped.
    """
    return Personalizer(where or {}).run(run, method, changes, out, resume)


@dataclass(frozen=True)
class Personalizer:
    """Where and how personal models are made; none of this changes a result."""

    where: Mapping[str, Any] = field(default_factory=dict)
    progress: Callable[[int, int], None] = lambda done, clients: None
    """Called at the start and after each client, with the numbers of finished and of all clients."""
    engine: Callable[[Federation], Engine] = lambda federation: make_engine(federation, federation.clients)

    def run(
        self,
        run: Run | str | Path,
        method: str | None = None,
        changes: Mapping[str, Any] | None = None,
        out: str | Path | None = None,
        resume: bool = False,
    ) -> Personalized:
        """Personalize a run as `personalize` describes."""
        directory = None if out is None else check_directory(Path(out), resume)
        if directory is None and resume:
            raise InputError("resume: requires the directory of the results (out)")
        with one_torch_thread():
            run = run if isinstance(run, Run) else Run.load(run)
            federation, weights, rounds = _load(run, self.where)
            settings = resolve_settings(federation, rounds, method, changes)
            if settings.save and directory is None:
                raise InputError("save: requires a directory for the models (out)")
            description = describe(federation, weights, settings)
            with directory.locked() if directory else nullcontext():
                if directory:
                    directory.begin(description)
                folder = directory.models if directory else None
                sent, load = federation.exchange.sent(weights), run.own_state if federation.exchange.kept else None
                clients = range(federation.clients)
                tasks = [Personalize(sent, client, settings, folder, load) for client in clients]
                results = self._run_missing(federation, tasks, directory)
        return Personalized(description, results, directory.path if directory else None)

    def _run_missing(
        self, federation: Federation, tasks: Sequence[Personalize], directory: PersonalDirectory | None
    ) -> list[PersonalResult]:
        """Run the tasks without a saved result, save each result as it comes, and return those of all tasks."""
        found = {result.client: result for result in (directory.read_results() if directory else [])}
        waiting = [task for task in tasks if task.client not in found]
        self.progress(len(found), len(tasks))
        interrupts = Interrupts()
        with interrupts, self.engine(federation) if waiting else nullcontext() as engine:
            answers = engine.run(waiting) if engine else iter(())
            while True:
                with interrupts.allowed():
                    _, result = next(answers, (None, None))
                if result is None:
                    break
                if isinstance(result, Missing):
                    log.warning("no personal model from client %d: %s", result.client, result.reason)
                    continue
                if directory:
                    directory.append(result)
                found[result.client] = result
                self.progress(len(found), len(tasks))
        if missing := [task.client for task in waiting if task.client not in found]:
            raise RunError(f"no result from clients {missing}; the others are saved: continue with --resume")
        return [found[client] for client in sorted(found)]


def check_directory(out: Path, resume: bool) -> PersonalDirectory:
    """Return the directory for results; refuse one that contains a run or the results of another call."""
    directory = PersonalDirectory(out)
    if directory.exists and not resume:
        raise InputError(f"{out}: already has results; resume it (resume), or choose another directory (out)")
    check_no_run(out)
    return directory


def check_no_run(out: Path) -> None:
    """Refuse a run directory as a place for results: both have files with the same names."""
    if RunDirectory(out).exists:
        raise InputError(f"{out}: is a run directory, whose files would be replaced; choose another (out)")


def _load(run: Run, where: Mapping[str, Any]) -> tuple[Federation, Weights, int]:
    """Return the run's federation, its last global weights, and the number of rounds that trained them."""
    run.check_model()
    federation = build_federation(run.experiment.override(where))
    if run.directory and run.files.exists:
        run.files.check_same_run(federation)
    if run.trained_rounds != federation.experiment.rounds and not run.stopped:
        log.warning("%s: only %d of %s rounds are done", run.directory, run.trained_rounds, run.experiment.rounds)
    return federation, run.weights, run.trained_rounds
