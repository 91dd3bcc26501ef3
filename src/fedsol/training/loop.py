"""train(): the only round loop."""

import functools
import logging
import operator
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fedsol.config.experiment import Experiment
from fedsol.core.interrupts import Interrupts
from fedsol.core.messages import Job, Missing, ServerState, Update, state_reference
from fedsol.core.randomness import one_torch_thread
from fedsol.core.weights import Weights, pick, size_in_bytes
from fedsol.engines import make_engine
from fedsol.engines.base import Engine
from fedsol.errors import InputError, RunError
from fedsol.federation.evaluation import Tally, summarize_hold_out
from fedsol.federation.federation import Federation, build_federation
from fedsol.federation.sampling import sample_clients, sample_testers, trains_alone
from fedsol.federation.tasks import EvaluateClient, Train, test_set_tasks
from fedsol.runs.client_states import ClientStates
from fedsol.runs.directory import RunDirectory
from fedsol.runs.rows import Row, rows_hash
from fedsol.runs.run import Run
from fedsol.training.aggregation import aggregate
from fedsol.training.divergence import find_divergence
from fedsol.training.guard import Sizes, check_loss, check_rejections, limits_of
from fedsol.training.updates import Requirements, RoundUpdates, expected_answers, not_finite

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RoundResult:
    """A finished round, as callbacks see it."""

    round: int
    before: ServerState
    after: ServerState
    updates: Sequence[Update]
    """The accepted updates, by client id."""
    evaluation: Tally | None
    """On the global test set, if the round was evaluated."""
    held_out: Mapping[int, Tally]
    """On the clients' hold-out sets, by client."""
    row: Row


class Callback:
    """Follow a run: override what you need. A callback must not change the run."""

    def started(self, federation: Federation, rows: Sequence[Row]) -> None:
        """Handle the start of this process; `rows` are those of rounds finished earlier."""

    def round_started(self, round_number: int, clients: Sequence[int]) -> None:
        """Handle the start of a round, when its clients are known."""

    def client_finished(self, update: Update) -> None:
        """Handle a client's update when it arrives."""

    def round_finished(self, result: RoundResult) -> None:
        """Handle a round that is finished and saved."""

    def finished(self, run: Run) -> None:
        """Handle the end of the run: complete, or interrupted after saving."""


def train(
    experiment: Experiment,
    callbacks: Iterable[Callback] = (),
    out: str | Path | None = None,
    resume: bool = False,
    engine: Callable[[Federation], Engine] = make_engine,
) -> Run:
    """Run an experiment and return the result.

    With `out` the run directory is written there, and `resume` continues an existing run there, to bitwise the
    same end as if it had never stopped. On Ctrl-C the last finished round is saved and `KeyboardInterrupt` raised.
    `engine` makes the engine that trains the clients; by default the one that the experiment names.
    """
    if out is None and resume:
        raise InputError("resume: requires the directory of the run (out)")
    directory = None if out is None else RunDirectory(Path(out))
    if directory and directory.exists and not resume:
        raise InputError(f"{out}: already has a run; resume it (--resume) or choose another directory (--out)")
    with one_torch_thread():
        federation = build_federation(experiment)
        with engine(federation) as opened, directory.locked() if directory else nullcontext():
            return _Loop(federation, directory, list(callbacks), opened).run()


def train_federation(federation: Federation, callbacks: Iterable[Callback] = ()) -> Run:
    """Run a federation that is already built, in memory only."""
    with one_torch_thread(), make_engine(federation) as engine:
        return _Loop(federation, None, list(callbacks), engine).run()


class _Loop:
    """The state of the round loop: what is known after the last finished round."""

    def __init__(
        self, federation: Federation, directory: RunDirectory | None, callbacks: list[Callback], engine: Engine
    ) -> None:
        self.federation = federation
        self.directory = directory
        self.callbacks = callbacks
        self.engine = engine
        self.server = federation.initial_server()
        initial_state = federation.initial_state()
        payload, state = expected_answers(federation, self.server, initial_state)
        if engine.keeps_states:
            initial_state = state = state_reference(0) if state else {}
        self.required = Requirements(payload, state, limits_of(federation.experiment, engine.keeps_states))
        self.states = ClientStates(lambda: initial_state, directory.checkpoints.client_folder if directory else None)
        self.late: list[Update] = []
        self.rows: list[Row] = []
        self.saved_round = 0
        self.is_diverging = False
        self.interrupts = Interrupts()

    def run(self) -> Run:
        """Run all rounds that are not finished yet."""
        self._open_directory()
        experiment = self.federation.experiment
        assert experiment.rounds is not None
        with self.interrupts:
            try:
                self._notify("started", self.federation, list(self.rows))
                for round_number in range(len(self.rows) + 1, experiment.rounds + 1):
                    self._round(round_number)
            finally:
                self._finish()
        return self._run_so_far()

    def _finish(self) -> None:
        """Save what is finished; notify the callbacks even if that fails, so that the terminal is left in order."""
        try:
            self._save_checkpoint()
            if self.directory:
                self.directory.write_summary(self._run_so_far().summary())
        finally:
            self.states.close()
            self._notify("finished", self._run_so_far())

    def _run_so_far(self) -> Run:
        path = self.directory.path if self.directory else None
        return Run(self.federation.experiment, list(self.rows), self.server.weights, path)

    def _open_directory(self) -> None:
        if self.directory is None:
            return
        if not self.directory.exists:
            self.directory.begin(self.federation)
            return
        self.directory.check_same_run(self.federation)
        rows = self.directory.read_rows()
        checkpoint = self.directory.checkpoints.newest(len(rows))
        if checkpoint is not None:
            if rows_hash(rows[: checkpoint.round]) != checkpoint.rows_sha256:
                raise RunError(
                    f"{self.directory.path / 'metrics.jsonl'}: its rows changed after they were written, so the run "
                    "cannot be resumed; nothing was changed"
                )
            self.server = checkpoint.server
            self.late = checkpoint.late
            self.states.restore(checkpoint.clients)
            self.saved_round = checkpoint.round
        elif self.directory.checkpoints.exist():
            raise RunError(
                f"{self.directory.path}: no checkpoint is intact and covered by the rows of metrics.jsonl, so the run "
                "cannot be resumed; nothing was changed"
            )
        elif rows:
            log.warning("%s: no checkpoint yet; the run restarts at round 1", self.directory.path)
        self.directory.lengthen(self.federation.experiment)
        if self.saved_round < (self.federation.experiment.rounds or 0):
            self.directory.record_software(self.saved_round)
        self.rows = rows[: self.saved_round]
        self.directory.rewrite_rows(self.rows)

    def _round(self, round_number: int) -> None:
        """Run one round: sample, train, check, aggregate, evaluate; then save everything or nothing."""
        start = time.perf_counter()
        before = self.server
        with self.interrupts.allowed():
            experiment, total = self.federation.experiment, self.federation.clients
            clients = [] if trains_alone(experiment) else sample_clients(experiment, total, round_number)
            self._notify("round_started", round_number, clients)
            updates = self._train(round_number, clients)
            accepted = updates.finish()
            if self.required.limits.max_change:
                check_rejections(round_number, updates.counts.rejected, updates.counts.rejected + len(accepted))
            after = self._aggregate(before, accepted, updates.recent_changes)
            evaluation, held_out = self._evaluate(after, round_number)
            updates.counts.bytes_down += len(held_out) * size_in_bytes(after.weights)
        row = make_row(updates, accepted, evaluation, held_out, time.perf_counter() - start)
        self._warn_of_divergence(row)
        if self.directory:
            self.directory.append_row(row)
        self.server = after
        self.late = sorted(updates.late, key=lambda update: update.client)  # not in order of arrival
        if len(accepted) >= self.federation.experiment.server.min_updates:
            self.states.commit(round_number)
        self.rows.append(row)
        if round_number % self.federation.experiment.server.checkpoint_every == 0:
            self._save_checkpoint()
        self._notify("round_finished", RoundResult(round_number, before, after, accepted, evaluation, held_out, row))

    def _warn_of_divergence(self, row: Row) -> None:
        """Warn once in a run."""
        found = find_divergence(row, self.federation.dataset.classes, self.federation.experiment)
        if found and not self.is_diverging:
            self.is_diverging = True
            log.warning("%s", found)

    def _train(self, round_number: int, clients: Sequence[int]) -> RoundUpdates:
        """Train the clients and return their updates."""
        faults = self.federation.faults(clients, round_number)
        updates = RoundUpdates(self.federation, self.server, self.states, round_number, faults, self.required)
        for update in self.late:
            updates.add_late(update)
        broadcast = self.federation.algorithm.broadcast(self.server)
        jobs = [
            Job(client, round_number, self.server.weights, broadcast, work=faults[client].work)
            for client in clients
            if not faults[client].dropped
        ]
        for _, answer in self.engine.run([Train(job, self.states.get) for job in jobs]):
            if isinstance(answer, Missing):
                updates.add_missing(answer)
            else:
                updates.add(answer)
                self._notify("client_finished", answer)
        reached = len(clients) - updates.counts.unreached
        updates.counts.bytes_down = reached * (size_in_bytes(self.server.weights) + size_in_bytes(broadcast))
        return updates

    def _aggregate(
        self, before: ServerState, updates: Sequence[Update], recent_changes: Sequence[Sizes]
    ) -> ServerState:
        settings = self.federation.experiment.server
        if len(updates) < settings.min_updates:
            return before
        rule = functools.partial(aggregate, settings, self.federation.algorithm)
        after = self.engine.aggregate(before, updates, rule)
        # Frozen parameters are copied: an average of equal tensors is not always that tensor, to the last bit.
        weights = {**after.weights, **pick(before.weights, self.federation.frozen)}
        after = replace(after, weights=weights, recent_changes=tuple(recent_changes))
        if problem := not_finite({**after.weights, **after.state, **after.optimizer}):
            raise RunError(
                f"the global model has values {problem} after round {len(self.rows) + 1}; the run stops after round "
                f"{len(self.rows)}: try a smaller client.lr or client.clip_norm"
            )
        return after

    def _evaluate(self, server: ServerState, round_number: int) -> tuple[Tally | None, dict[int, Tally]]:
        """Evaluate on the global test set, if there is one, and on the clients' hold-out sets, if there are any."""
        federation, experiment = self.federation, self.federation.experiment
        if not experiment.is_evaluated(round_number):
            return None, {}
        testers = sample_testers(experiment, federation.clients, round_number)
        held_out = self._evaluate_clients(server.weights, testers)
        if not len(federation.dataset.test):
            return None, held_out
        tally = evaluate_test(self.engine, federation, server.weights)
        if not torch.isfinite(torch.tensor(tally.loss)):
            raise RunError(
                f"round {round_number}: the test loss of the global model is not finite ({tally.loss}); "
                f"the run stops after round {len(self.rows)}: try a smaller client.lr or client.clip_norm"
            )
        if self.required.limits.max_change:
            check_loss(round_number, tally.loss, (row["test_loss"] for row in self.rows), federation.dataset.classes)
        return tally, held_out

    def _evaluate_clients(self, weights: Weights, clients: Sequence[int]) -> dict[int, Tally]:
        """Return the results of the clients that answer, by client."""
        found = {}
        for task, answer in self.engine.run([EvaluateClient(weights, client) for client in clients]):
            if isinstance(answer, Missing):
                log.warning("no test result from client %d: %s", answer.client, answer.reason)
            elif isinstance(task, EvaluateClient):
                found[task.client] = answer
        return dict(sorted(found.items()))

    def _save_checkpoint(self) -> None:
        if self.directory and len(self.rows) > self.saved_round:
            self.directory.checkpoints.save(len(self.rows), self.server, self.late, self.states, rows_hash(self.rows))
            self.saved_round = len(self.rows)

    def _notify(self, event: str, *arguments: object) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(*arguments)


def evaluate_test(engine: Engine, federation: Federation, weights: Weights) -> Tally:
    """Evaluate global weights on the test set, in parts that suit the engine; the tally is the same for any number."""
    answers = engine.run(test_set_tasks(federation, weights, engine.workers))
    return functools.reduce(operator.add, (tally for _, tally in answers if isinstance(tally, Tally)))


def make_row(
    updates: RoundUpdates,
    accepted: Sequence[Update],
    evaluation: Tally | None,
    held_out: Mapping[int, Tally],
    seconds: float,
) -> Row:
    """Return the row of a finished round in metrics.jsonl."""
    summary = summarize_hold_out(held_out.values(), updates.required.limits.max_share)
    faults, counts = updates.faults.values(), updates.counts
    return {
        "round": updates.round,
        "test_accuracy": evaluation.accuracy if evaluation else None,
        "test_loss": evaluation.loss if evaluation else None,
        "train_loss": sum(u.share * u.metrics["train_loss"] for u in accepted) if accepted else None,
        "clients": len(accepted),
        "examples": sum(update.examples for update in accepted),
        "seconds": round(seconds, 3),
        "bytes_up": counts.bytes_up,
        "bytes_down": counts.bytes_down,
        "rejected": counts.rejected,
        "clipped": counts.clipped,
        "dropped": sum(fault.dropped for fault in faults) + counts.missing,
        "stragglers": sum(fault.work < 1 and not fault.dropped for fault in faults),
        "late": counts.late,
        "corrupted": counts.corrupted,
        "restarted": counts.restarted,
        "client_ids": list(updates.faults),
        "class_accuracy": evaluation.class_accuracy if evaluation else None,
        "held_out_clients": summary.clients,
        "held_out_accuracy": summary.mean,
        "held_out_std": summary.std,
        "held_out_worst": summary.worst,
    }
