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
from fedsol.core.messages import Job, Missing, ServerState, Update
from fedsol.core.randomness import one_torch_thread
from fedsol.core.weights import Weights, pick, size_in_bytes
from fedsol.engines import make_engine
from fedsol.engines.base import Engine
from fedsol.errors import InputError, RunError
from fedsol.federation.evaluation import Tally, spread_over_clients
from fedsol.federation.federation import Federation, build_federation
from fedsol.federation.sampling import sample_clients, sample_testers
from fedsol.federation.tasks import EvaluateClient, Train, test_set_tasks
from fedsol.runs.client_states import ClientStates
from fedsol.runs.directory import RunDirectory
from fedsol.runs.rows import Row, rows_hash
from fedsol.runs.run import Run
from fedsol.training.aggregation import aggregate
from fedsol.training.checks import not_finite
from fedsol.training.faults import plan
from fedsol.training.updates import Inbox, expected_answers, late_by_client

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
    """On what clients held out, by client."""
    row: Row


class Callback:
    """Override what you need; nothing here may change the run."""

    def started(self, federation: Federation, rows: Sequence[Row]) -> None:
        """Before the first round of this process; `rows` are those of rounds finished earlier."""

    def round_started(self, round_number: int, clients: Sequence[int]) -> None:
        """The clients of a round are known."""

    def client_finished(self, update: Update) -> None:
        """One client's update has come in."""

    def round_finished(self, result: RoundResult) -> None:
        """A round is over and saved."""

    def finished(self, run: Run) -> None:
        """The run is over: complete, or interrupted after saving."""


def train(
    experiment: Experiment,
    callbacks: Iterable[Callback] = (),
    out: str | Path | None = None,
    resume: bool = False,
    engine: Callable[[Federation], Engine] = make_engine,
) -> Run:
    """Runs an experiment and returns what came of it.

    With `out` the run directory is written there, and `resume` goes on with a run that is there already, to bitwise
    the same end as if it had never stopped. On Ctrl-C the last finished round is saved and `KeyboardInterrupt` raised.
    `engine` makes the place where clients are trained; by default the one that the experiment names.
    """
    if out is None and resume:
        raise InputError("resume: needs the directory of the run (out)")
    directory = None if out is None else RunDirectory(Path(out))
    if directory and directory.exists and not resume:
        raise InputError(f"{out}: holds a run already; resume it (--resume) or choose another directory (--out)")
    with one_torch_thread():
        federation = build_federation(experiment)
        with engine(federation) as opened, directory.locked() if directory else nullcontext():
            return _Loop(federation, directory, list(callbacks), opened).run()


def train_federation(federation: Federation, callbacks: Iterable[Callback] = ()) -> Run:
    """Run a federation that is built already, in memory alone."""
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
        initial = federation.initial_weights()
        parameters = pick(initial, federation.model.names)
        algorithm = federation.algorithm
        self.server = ServerState(
            initial, federation.model.names, federation.clients, algorithm.init_server(parameters)
        )
        initial_state = federation.initial_state()
        self.expected = expected_answers(federation, self.server, initial_state, engine.keeps_states)
        if engine.keeps_states:
            initial_state = dict(self.expected[1])
        self.states = ClientStates(lambda: initial_state, directory.checkpoints.client_folder if directory else None)
        self.late: list[Update] = []
        self.rows: list[Row] = []
        self.saved_round = 0
        self.interrupts = Interrupts()

    def run(self) -> Run:
        """All rounds that are not finished yet."""
        self._open_directory()
        experiment = self.federation.experiment
        assert experiment.rounds is not None
        with self.interrupts:
            try:
                self._tell("started", self.federation, list(self.rows))
                for round_number in range(len(self.rows) + 1, experiment.rounds + 1):
                    self._round(round_number)
            finally:
                self._finish()
        return self._run_so_far()

    def _finish(self) -> None:
        """Saves what is finished; whatever fails, the callbacks are told, so that a terminal is left in order."""
        try:
            self._save_checkpoint()
            if self.directory:
                self.directory.write_summary(self._run_so_far().summary())
        finally:
            self.states.close()
            self._tell("finished", self._run_so_far())

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
                    f"{self.directory.path / 'metrics.jsonl'}: its rows are not those that were written, so the run "
                    "cannot go on; nothing was changed"
                )
            self.server = checkpoint.server
            self.late = checkpoint.late
            self.states.restore(checkpoint.clients)
            self.saved_round = checkpoint.round
        elif self.directory.checkpoints.exist():
            raise RunError(
                f"{self.directory.path}: no checkpoint is whole and covered by the rows of metrics.jsonl, so the run "
                "cannot go on; nothing was changed"
            )
        elif rows:
            log.warning("%s: there is no checkpoint yet; the run starts again with round 1", self.directory.path)
        self.directory.lengthen(self.federation.experiment)
        if self.saved_round < (self.federation.experiment.rounds or 0):
            self.directory.record_software(self.saved_round)
        self.rows = rows[: self.saved_round]
        self.directory.rewrite_rows(self.rows)

    def _round(self, round_number: int) -> None:
        """One round: sample, train, check, aggregate, evaluate; then all of it is kept, or nothing."""
        start = time.perf_counter()
        before = self.server
        with self.interrupts.allowed():
            clients = self._sample(round_number)
            self._tell("round_started", round_number, clients)
            inbox, bytes_down = self._train(round_number, clients)
            accepted = inbox.accepted()
            after = self._aggregate(before, accepted)
            evaluation, held_out = self._evaluate(after, round_number)
            bytes_down += len(held_out) * size_in_bytes(after.weights)
        seconds = time.perf_counter() - start
        row = make_row(clients, inbox, accepted, bytes_down, evaluation, held_out, seconds)
        if self.directory:
            self.directory.append_row(row)
        self.server = after
        self.late = late_by_client(inbox.late)
        if len(accepted) >= self.federation.experiment.server.min_updates:
            self.states.commit(round_number)
        self.rows.append(row)
        if round_number % self.federation.experiment.server.checkpoint_every == 0:
            self._save_checkpoint()
        self._tell("round_finished", RoundResult(round_number, before, after, accepted, evaluation, held_out, row))

    def _sample(self, round_number: int) -> list[int]:
        """The clients of a round; nobody, if the method has no use for rounds."""
        if not self.federation.algorithm.federates:
            return []
        return sample_clients(self.federation.experiment, self.federation.clients, round_number)

    def _train(self, round_number: int, clients: Sequence[int]) -> tuple[Inbox, int]:
        """The round's updates, and the bytes that were sent for them."""
        experiment = self.federation.experiment
        faults = plan(experiment.faults, experiment.seed, round_number, clients)
        inbox = Inbox(self.federation, self.server, self.states, round_number, faults, self.expected)
        for update in self.late:
            inbox.take_late(update)
        broadcast = self.federation.algorithm.broadcast(self.server)
        jobs = [
            Job(client, round_number, self.server.weights, broadcast, work=faults[client].work)
            for client in clients
            if not faults[client].dropped
        ]
        for _, answer in self.engine.run([Train(job, self.states.get) for job in jobs]):
            if isinstance(answer, Missing):
                inbox.take_missing(answer)
            else:
                inbox.take(answer)
                self._tell("client_finished", answer)
        asked = len(clients) - inbox.counts.unreached
        return inbox, asked * (size_in_bytes(self.server.weights) + size_in_bytes(broadcast))

    def _aggregate(self, before: ServerState, updates: Sequence[Update]) -> ServerState:
        settings = self.federation.experiment.server
        if len(updates) < settings.min_updates:
            return before
        rule = functools.partial(aggregate, settings, self.federation.algorithm)
        after = self.engine.aggregate(before, updates, rule)
        # What nobody trained stays as it is: an average of equal tensors is not always that tensor, to the last bit.
        after = replace(after, weights={**after.weights, **pick(before.weights, self.federation.frozen)})
        if problem := not_finite({**after.weights, **after.state, **after.optimizer}):
            raise RunError(
                f"the global model has values {problem} after round {len(self.rows) + 1}; the run stops after round "
                f"{len(self.rows)}: try a smaller client.lr or client.clip_norm"
            )
        return after

    def _evaluate(self, server: ServerState, round_number: int) -> tuple[Tally | None, dict[int, Tally]]:
        """On the global test set, if there is one, and on what clients held out, if they did."""
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
        return tally, held_out

    def _evaluate_clients(self, weights: Weights, clients: Sequence[int]) -> dict[int, Tally]:
        """The tests of the clients that answer, by client."""
        found = {}
        for task, answer in self.engine.run([EvaluateClient(weights, client) for client in clients]):
            if isinstance(answer, Missing):
                log.warning("no test of client %d: %s", answer.client, answer.reason)
            elif isinstance(task, EvaluateClient):
                found[task.client] = answer
        return dict(sorted(found.items()))

    def _save_checkpoint(self) -> None:
        if self.directory and len(self.rows) > self.saved_round:
            self.directory.checkpoints.save(len(self.rows), self.server, self.late, self.states, rows_hash(self.rows))
            self.saved_round = len(self.rows)

    def _tell(self, event: str, *arguments: object) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(*arguments)


def evaluate_test(engine: Engine, federation: Federation, weights: Weights) -> Tally:
    """Evaluate global weights on the test set, in as many parts as suit the engine; the tally is the same for any."""
    answers = engine.run(test_set_tasks(federation, weights, engine.workers))
    return functools.reduce(operator.add, (tally for _, tally in answers if isinstance(tally, Tally)))


def make_row(
    clients: Sequence[int],
    inbox: Inbox,
    accepted: Sequence[Update],
    bytes_down: int,
    evaluation: Tally | None,
    held_out: Mapping[int, Tally],
    seconds: float,
) -> Row:
    """The row of a finished round in metrics.jsonl."""
    spread = spread_over_clients(held_out.values())
    faults, counts = inbox.faults.values(), inbox.counts
    return {
        "round": inbox.round,
        "test_accuracy": evaluation.accuracy if evaluation else None,
        "test_loss": evaluation.loss if evaluation else None,
        "train_loss": sum(u.share * u.metrics["train_loss"] for u in accepted) if accepted else None,
        "clients": len(accepted),
        "examples": sum(update.examples for update in accepted),
        "seconds": round(seconds, 3),
        "bytes_up": counts.bytes_up,
        "bytes_down": bytes_down,
        "rejected": counts.rejected,
        "clipped": counts.clipped,
        "dropped": sum(fault.dropped for fault in faults) + counts.missing,
        "stragglers": sum(fault.work < 1 and not fault.dropped for fault in faults),
        "late": counts.late,
        "corrupted": counts.corrupted,
        "restarted": counts.restarted,
        "client_ids": list(clients),
        "class_accuracy": evaluation.class_accuracy if evaluation else None,
        "held_out_clients": spread.clients,
        "held_out_accuracy": spread.mean,
        "held_out_std": spread.std,
        "held_out_worst": spread.worst,
    }
