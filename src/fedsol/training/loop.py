"""train(): the only round loop."""

import functools
import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, cast

from fedsol.config.experiment import Experiment
from fedsol.config.overrides import flatten
from fedsol.core.interrupts import Interrupts
from fedsol.core.messages import Job, Missing, ServerState, State, Update, state_reference
from fedsol.core.randomness import one_torch_thread
from fedsol.core.weights import pick, size_in_bytes
from fedsol.data.description import describe_data
from fedsol.engines import make_engine
from fedsol.engines.base import Engine
from fedsol.errors import InputError, RunError
from fedsol.federation.evaluation import Tally
from fedsol.federation.federation import Federation, build_federation, try_own_code
from fedsol.federation.sampling import sample_clients, trains_alone
from fedsol.federation.tasks import Train
from fedsol.runs.client_states import ClientStates
from fedsol.runs.directory import RunDirectory
from fedsol.runs.rows import Row, Rows, rows_to_text
from fedsol.runs.run import Run
from fedsol.runs.selection import Selection, Standing, Stop
from fedsol.training.aggregation import aggregate, apply_server_optimizer
from fedsol.training.callbacks import Callback, RoundResult, StopTraining
from fedsol.training.evaluation import Evaluation, check_tests, evaluate_everywhere
from fedsol.training.folding import reason_to_hold, window_size
from fedsol.training.guard import check_abstentions, check_loss, check_rejections, find_divergence, limits_of
from fedsol.training.private import private_rounds, with_privacy
from fedsol.training.rows import make_row
from fedsol.training.updates import Requirements, RoundUpdates, expected_answers, not_finite

log = logging.getLogger(__name__)

Saved = TypeVar("Saved", ServerState, Update)


@dataclass(frozen=True)
class _Best:
    """The server after the best round by validation."""

    round: int
    server: ServerState
    rows_sha256: str
    is_saved: bool = False


def train(
    experiment: Experiment,
    callbacks: Iterable[Callback] = (),
    out: str | Path | None = None,
    resume: bool = False,
    engine: Callable[[Federation], Engine] = make_engine,
    data: object = None,
) -> Run:
    """Run an experiment and return the result.

    With `out` the run directory is written there, and `resume` continues an existing run there, to bitwise the
    same end as if it had never stopped. On Ctrl-C the last finished round is saved and `KeyboardInterrupt` raised.
    `engine` makes the engine that trains the clients; by default the one that the experiment names. `data` is the data
    itself in place of its name: a pandas DataFrame, a torch Dataset, a `fedsol.Dataset`, or a dict of arrays.
    """
    if out is None and resume:
        raise InputError("resume: requires the directory of the run (out)")
    directory = None if out is None else RunDirectory(Path(out))
    if directory and directory.exists and not resume:
        raise InputError(f"{out}: already has a run; resume it (resume), or choose another directory (out)")
    with one_torch_thread():
        federation = build_federation(experiment, data)
        try_own_code(federation)
        federation = with_privacy(federation, directory.read_noise() if directory else None)
        with engine(federation) as opened, directory.locked() if directory else nullcontext():
            return _Loop(federation, directory, list(callbacks), opened).run()


def train_federation(federation: Federation, callbacks: Iterable[Callback] = ()) -> Run:
    """Run a federation that is already built, in memory only."""
    federation = with_privacy(federation)
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
        self.selection = Selection.of(flatten(federation.experiment.model_dump()))
        check_tests(federation, self.selection)
        self.server = federation.initial_server()
        initial_state = federation.initial_state()
        payload, state = expected_answers(federation, self.server, initial_state)
        if engine.keeps_states:
            initial_state = state = state_reference(0) if state else {}
        self.privacy = private_rounds(federation, directory.path if directory and engine.keeps_states else None)
        self.required = Requirements(payload, state, limits_of(federation.experiment, engine.keeps_states))
        holds = engine.keeps_states or any(callback.needs_updates for callback in callbacks)
        reason = reason_to_hold(federation.experiment, federation.algorithm, self.required.limits)
        self.folds = not holds and reason is None
        self.states = ClientStates(lambda: initial_state, directory.checkpoints.client_folder if directory else None)
        self.last_states: dict[int, State] = {}
        self.late: list[Update] = []
        self.rows = Rows()
        self.rows_hash = hashlib.sha256()
        self.standing = Standing(self.selection)
        self.best_rounds: dict[int, int | None] = {}  # as of each checkpoint on disk
        self.saved_round = 0
        self.best: _Best | None = None
        self.is_diverging = False
        self.stop: Stop | None = None
        self.interrupts = Interrupts()

    def run(self) -> Run:
        """Run all rounds that are not finished yet."""
        self._open_directory()
        with self.interrupts:
            try:
                if self.privacy:
                    self.privacy.announce(cast(int, self.federation.experiment.rounds))
                self._notify("started", self.federation, self.rows[:])
                while not self._is_over():
                    self._round(len(self.rows) + 1)
            finally:
                self._finish()
        return self._run_so_far()

    def _is_over(self) -> bool:
        """Return whether no round is left, and record the reason where rows do not give it."""
        if self.stop or self.standing.stop or len(self.rows) >= cast(int, self.federation.experiment.rounds):
            return True
        if self.privacy is None or not self.privacy.is_spent:
            return False
        budget = self.selection.budget
        reason = f"one more round would exceed privacy.epsilon = {budget:g}: rounds that are not kept were paid for"
        self.stop = Stop(len(self.rows), reason)
        return True

    def _finish(self) -> None:
        """Save what is finished; notify the callbacks even if that fails, so that the terminal is left in order."""
        try:
            self._save_checkpoint()
            if self.directory:
                self.directory.write_summary(self._run_so_far().summary())
        finally:
            if self.federation.exchange.kept and not self.directory:
                self.last_states = self.states.all()
            self.states.close()
            self._notify("finished", self._run_so_far())

    def _run_so_far(self) -> Run:
        path = self.directory.path if self.directory else None
        best = self.best.server.weights if self.best else None
        run = Run(self.federation.experiment, list(self.rows), self.server.weights, path, best)
        run.client_states = self.last_states
        run.frozen_sha256 = self.federation.model.frozen_sha256
        run.stopped_by_callback = self.stop
        run.description = describe_data(self.federation.dataset, self.federation.experiment.data)
        return run

    def _open_directory(self) -> None:
        if self.directory is None:
            return
        if not self.directory.exists:
            self.directory.begin(self.federation)
            if self.privacy:
                self.privacy.begin()
            return
        self.directory.check_same_run(self.federation)
        lines = self.directory.read_lines()
        checkpoint = self.directory.checkpoints.newest(len(lines))
        text = b"".join(lines[: checkpoint.round] if checkpoint else [])
        if checkpoint is not None:
            self.rows_hash.update(text)
            if self.rows_hash.hexdigest() != checkpoint.rows_sha256:
                self.directory.read_rows()  # raises if a line is no row at all
                raise RunError(
                    f"{self.directory.path / 'metrics.jsonl'}: its rows changed after they were written, so the run "
                    "cannot be resumed; nothing was changed"
                )
            self.server = self._without_frozen(checkpoint.server)
            self.late = [self._without_frozen(update) for update in checkpoint.late]
            self.states.restore(checkpoint.clients)
            self.saved_round = checkpoint.round
        elif self.directory.checkpoints.exist():
            raise RunError(
                f"{self.directory.path}: no checkpoint is intact and covered by the rows of metrics.jsonl, so the run "
                "cannot be resumed; nothing was changed"
            )
        elif lines:
            log.warning("%s: no checkpoint yet; the run restarts at round 1", self.directory.path)
        if len(lines) > self.saved_round:
            self.directory.read_rows(after=self.saved_round)  # raises if one is damaged
        if self.privacy:
            self.privacy.resume(Rows(lines), self.saved_round)
        self.directory.lengthen(self.federation.experiment)
        self.rows = Rows(lines[: self.saved_round])
        if self.selection.may_stop or self.selection.has_validation:
            self.standing = Standing(self.selection, self.rows)
        if not self._is_over():
            self.directory.record_software(self.saved_round)
        self.directory.keep_rows(text)
        self._restore_best()

    def _without_frozen(self, saved: Saved) -> Saved:
        """Return what a checkpoint saved without the frozen weights that those of earlier versions have."""
        where = self.directory.path if self.directory else ""
        return replace(saved, weights=self.federation.model.without_frozen(saved.weights, where))

    def _restore_best(self) -> None:
        """Read the best round so far; without its checkpoint, a later round may still be better."""
        number = self.standing.best_round if self.selection.has_validation else None
        if self.directory and number is not None:
            covered = [saved for saved in self.directory.checkpoints.rounds() if saved <= self.saved_round]
            self.best_rounds = {saved: self.selection.best_round(self.rows[:saved]) for saved in covered}
            try:
                found = self.directory.checkpoints.best(number)
                self.best = _Best(number, self._without_frozen(found.server), found.rows_sha256, is_saved=True)
            except RunError as error:
                log.warning("%s; the model of round %d, the best so far, is lost", error, number)

    def _round(self, round_number: int) -> None:
        """Run one round: sample, train, check, aggregate, evaluate; then save everything or nothing."""
        start = time.perf_counter()
        with self.interrupts.allowed():
            experiment = self.federation.experiment
            clients = [] if trains_alone(experiment) else self._sample(round_number)
            self._notify("round_started", round_number, clients)
            sending = self.federation.sending(self.server)
            updates = self._train(round_number, clients, sending)
            accepted = updates.finish()
            if self.required.limits.max_change:
                check_rejections(round_number, updates.counts.rejected, updates.counts.rejected + len(accepted))
            after = self._aggregate(updates, accepted)
            evaluation = self._evaluate(after, round_number, self._counts(updates, accepted))
            updates.counts.bytes_down += evaluation.tests_by_clients * size_in_bytes(sending.weights)
        spent = self.privacy.columns(sending) if self.privacy else {}
        row = make_row(updates, accepted, evaluation, {"seconds": round(time.perf_counter() - start, 3), **spent})
        self._warn_of_divergence(row)
        if self.directory:
            self.directory.append_row(row)
        self.server = after
        self.late = sorted(updates.late, key=lambda update: update.client)  # not in order of arrival
        if self._counts(updates, accepted):
            self.states.commit(round_number)
        self.rows.append(row)
        self.rows_hash.update(rows_to_text([row]).encode())
        self.standing.add(row)
        if self.selection.has_validation and self.standing.best_round == round_number:
            self.best = _Best(round_number, after, self.rows_hash.hexdigest())
        if round_number % self.federation.experiment.server.checkpoint_every == 0:
            self._save_checkpoint()
        tested = (evaluation.test, evaluation.held_out)
        self._notify("round_finished", RoundResult(round_number, sending, after, accepted, *tested, row))

    def _warn_of_divergence(self, row: Row) -> None:
        """Warn once in a run."""
        found = find_divergence(row, self.federation.objective.guessing_loss, self.federation.experiment)
        if found and not self.is_diverging:
            self.is_diverging = True
            log.warning("%s", found)

    def _sample(self, round_number: int) -> list[int]:
        """Return the clients of a round."""
        if self.privacy:
            return self.privacy.sample(round_number)
        return sample_clients(self.federation.experiment, self.federation.clients, round_number)

    def _train(self, round_number: int, clients: Sequence[int], sending: ServerState) -> RoundUpdates:
        """Send the clients their weights and return their updates; repeat that, holding all, after a surprise."""
        updates = self._collect(round_number, clients, sending, functools.partial(self._notify, "client_finished"))
        if updates.is_surprised:
            log.info("round %d: not every update is accepted: its clients train once more", round_number)
            self.folds = False
            updates = self._collect(round_number, clients, sending, lambda _update: None)
        return updates

    def _collect(
        self, round_number: int, clients: Sequence[int], sending: ServerState, notify: Callable[[Update], None]
    ) -> RoundUpdates:
        faults = self.federation.faults(clients, round_number)
        updates = RoundUpdates(self.federation, sending, self.states, round_number, faults, self.required)
        for update in self.late:
            updates.add_late(update)
        if self.folds:
            updates.fold()
        broadcast = self.federation.algorithm.broadcast(sending)
        jobs = [
            Job(client, round_number, sending.weights, broadcast, work=faults[client].work)
            for client in clients
            if not faults[client].dropped
        ]
        window = window_size(self.engine.workers) if self.folds else max(1, len(jobs))
        tasks = [Train(job, self.states.get, turn=place // window) for place, job in enumerate(jobs)]
        for _, answer in self.engine.run(tasks):
            if isinstance(answer, Missing):
                updates.add_missing(answer)
            else:
                updates.add(answer, self.privacy.receive(answer) if self.privacy else None)
                notify(answer)
        check_abstentions(round_number, updates.counts.abstained, len(clients))
        reached = len(clients) - updates.counts.unreached
        updates.counts.bytes_down = reached * (size_in_bytes(sending.weights) + size_in_bytes(broadcast))
        return updates

    def _aggregate(self, updates: RoundUpdates, accepted: Sequence[Update]) -> ServerState:
        """Return the server after a round."""
        before, seen, settings = updates.server, accepted, self.federation.experiment.server
        if self.privacy:
            seen, before, clipped = self.privacy.release(before, accepted, updates.round)
            updates.counts.clipped += clipped
        if not self._counts(updates, accepted):
            return self.server
        if updates.folding:
            after = apply_server_optimizer(settings, before, replace(before, weights=updates.folding.mean))
        else:
            after = aggregate(settings, self.federation.algorithm, before, seen)
        # Untrained parameters are copied: an average of equal tensors is not always that tensor, to the last bit.
        known = self.server.weights
        weights = {**known, **after.weights, **pick(known, self.federation.untrained)}
        parameters = self.server.parameters
        after = replace(after, weights=weights, parameters=parameters, recent_changes=tuple(updates.recent_changes))
        if problem := not_finite({**after.weights, **after.state, **after.optimizer}):
            raise RunError(
                f"the global model has values {problem} after round {len(self.rows) + 1}; the run stops after round "
                f"{len(self.rows)}: try a smaller client.lr or client.clip_norm"
            )
        return after

    def _counts(self, updates: RoundUpdates, accepted: Sequence[Update]) -> bool:
        """Return whether enough clients sent updates for the round to count.

        Where noise protects clients, so do rejected updates: whether one is rejected reveals something of its client.
        """
        experiment = self.federation.experiment
        rejected = updates.counts.rejected if experiment.privacy.covers_clients else 0
        return len(accepted) + rejected >= experiment.server.min_updates

    def _evaluate(self, server: ServerState, round_number: int, counts: bool) -> Evaluation:
        """Evaluate the global model, if it is the round's turn, and check that it is not lost.

        The states of the round's clients are theirs if the round counts.
        """
        if not self.federation.experiment.is_evaluated(round_number):
            return Evaluation()
        load_state = functools.partial(self.states.newest, round_number if counts else None)
        found = evaluate_everywhere(self.engine, self.federation, server.weights, round_number, load_state)
        self._check_losses(round_number, {"test": found.test, "validation": found.central_validation})
        return found

    def _check_losses(self, round_number: int, tallies: Mapping[str, Tally | None]) -> None:
        """Raise `RunError` if the global model is lost."""
        for name, tally in tallies.items():
            if tally and not math.isfinite(tally.loss):
                raise RunError(
                    f"round {round_number}: the {name} loss of the global model is not finite ({tally.loss}); "
                    f"the run stops after round {len(self.rows)}: try a smaller client.lr or client.clip_norm"
                )
        test = tallies["test"]
        if test and self.required.limits.max_change:
            earlier, guessing = [row["test_loss"] for row in self.rows], self.federation.objective.guessing_loss
            check_loss(round_number, test.loss, earlier, guessing)

    def _save_checkpoint(self) -> None:
        """Save the best round, if it is new, before the checkpoint that refers to it."""
        if not self.directory or len(self.rows) == self.saved_round:
            return
        checkpoints = self.directory.checkpoints
        if self.best and not self.best.is_saved:
            checkpoints.save_best(self.best.round, self.best.server, self.best.rows_sha256)
            self.best = replace(self.best, is_saved=True)
        checkpoints.save(len(self.rows), self.server, self.late, self.states, self.rows_hash.hexdigest())
        self.saved_round = len(self.rows)
        if self.selection.has_validation:
            known = {**self.best_rounds, self.saved_round: self.standing.best_round}
            self.best_rounds = {number: known.get(number) for number in checkpoints.rounds()}
            checkpoints.drop_bests(self.best_rounds.values())

    def _notify(self, event: str, *arguments: object) -> None:
        for callback in self.callbacks:
            try:
                getattr(callback, event)(*arguments)
            except StopTraining as stop:
                self.stop = Stop(max(1, len(self.rows)), str(stop) or f"{type(callback).__name__} stopped it")
