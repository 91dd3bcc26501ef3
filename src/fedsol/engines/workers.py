"""The engine that runs tasks in parallel in worker processes, one torch thread each."""

import contextlib
import ctypes
import logging
import math
import multiprocessing
import os
import signal
import socket
import struct
import sys
import time
import traceback
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic

import torch
from torch import Tensor

from fedsol.config.experiment import Experiment
from fedsol.core.memory import keep_freed_memory
from fedsol.core.messages import Job, State, Update, pack_update, unpack_update
from fedsol.core.user_code import describe_user_error, user_place
from fedsol.core.weights import Weights, clone, prefixed, without_prefix
from fedsol.data.types import Dataset
from fedsol.engines.base import AHEAD, Engine
from fedsol.engines.shared import Channel, Message, Outbox, Placed
from fedsol.errors import InputError, RunError, UserCodeError
from fedsol.federation.evaluation import Tally
from fedsol.federation.federation import Federation, assemble
from fedsol.federation.personal import PersonalResult, PersonalSettings
from fedsol.federation.tasks import (
    A,
    EngineTask,
    EvaluateClient,
    EvaluateTest,
    EvaluateValidation,
    Personalize,
    Train,
)
from fedsol.objectives.metrics import Scores

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""How many times a task is tried before its dying or silent workers stop the run."""


class WorkersEngine(Engine):
    """A pool of processes, started once. The data is shared with them; global weights go to each once a round.

    A worker that dies, or says nothing for `engine.timeout` seconds, is replaced and its task repeated; since a task is
    a pure function, only time is lost.
    """

    def __init__(self, federation: Federation, count: int) -> None:
        self._federation = federation
        self._context = _context(federation)
        self._timeout = federation.experiment.engine.timeout
        self._workers = [_Worker(self._context, federation) for _ in range(count)]
        self._weights: Weights | None = None
        self._broadcast: State = {}
        self._outbox = Outbox()
        self._round: Placed | None = None
        self.workers = count

    def run(self, tasks: Sequence[EngineTask[A]]) -> Iterator[tuple[EngineTask[A], A]]:
        if not tasks:
            return
        self._begin_round(tasks[0])
        longest_first = sorted(tasks, key=lambda task: (task.turn, -task.cost(self._federation)))
        waiting = deque(_Attempt(task) for task in longest_first)
        running: dict[_Worker, _Attempt[A]] = {}
        answered: list[tuple[EngineTask[A], A]] = []
        while waiting or running:
            for worker in self._workers:
                if waiting and worker not in running and _may_start(waiting[0], running.values()):
                    running[worker] = waiting.popleft()
                    running[worker].deadline = time.monotonic() + self._timeout
                    worker.begin(running[worker].task, self._round)
            yield from answered  # while the workers are busy with their next tasks
            answered.clear()
            busy = {worker.channel.connection: worker for worker in running}
            first_deadline = min(attempt.deadline for attempt in running.values())
            ready = wait(list(busy), max(0.0, first_deadline - time.monotonic()))
            silent = [worker for worker, attempt in running.items() if attempt.deadline <= time.monotonic()]
            for worker in [busy[connection] for connection in ready] or silent:  # type: ignore[index]
                reply = worker.reply() if ready else None
                attempt = running.pop(worker)
                if reply is None:
                    self._replace(worker, attempt)
                    waiting.appendleft(attempt)
                else:
                    answered.append((attempt.task, _answer_from(*reply)))
        yield from answered

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()

    def _begin_round(self, task: EngineTask[Any]) -> None:
        """Write what every worker needs before its first task, once; weights that it already has are not sent again."""
        weights, broadcast = task.shared()
        if weights is self._weights and not broadcast and not self._broadcast:
            return
        self._weights, self._broadcast = weights, broadcast
        if self._round is not None:
            self._outbox.release([self._round.place.number])
        self._round = self._outbox.put({**prefixed("weights", weights), **prefixed("broadcast", broadcast)})
        for worker in self._workers:
            worker.has_weights = False

    def _replace(self, lost: "_Worker", attempt: "_Attempt[A]") -> None:
        """Replace a worker that died or fell silent during a task."""
        attempt.failures += 1
        silent = attempt.deadline <= time.monotonic()
        lost.stop()
        if silent:
            what = f"said nothing for {self._timeout:g} seconds (engine.timeout)"
        else:
            what = f"died with exit code {lost.process.exitcode}"
        task = _message(attempt.task)
        if attempt.failures < ATTEMPTS:
            log.warning("a worker process %s during %s; it is replaced and the task repeated", what, task)
            self._workers[self._workers.index(lost)] = _Worker(self._context, self._federation)
            return
        remedy = (
            "if the task takes that long, raise engine.timeout"
            if silent
            else f"this machine may have too little memory for engine.workers = {len(self._workers)}"
        )
        raise RunError(f"{ATTEMPTS} worker processes failed on the same task ({task}); the last one {what}: {remedy}")


def _may_start(attempt: "_Attempt[A]", running: Collection["_Attempt[A]"]) -> bool:
    """Return whether no task of a much earlier turn is unfinished, whose answer those after it would wait for."""
    return not running or attempt.task.turn <= min(other.task.turn for other in running) + AHEAD


class _Attempt(Generic[A]):
    """A task, how many workers were lost on it, and until when the present one may take."""

    def __init__(self, task: EngineTask[A]) -> None:
        self.task = task
        self.failures = 0
        self.deadline = math.inf


class _Worker:
    """A worker process as the pool sees it."""

    def __init__(self, context: BaseContext, federation: Federation) -> None:
        ours, theirs = context.Pipe()
        data = (federation.dataset, federation.partition, federation.model.frozen_sha256)
        arguments = (theirs, os.getpid(), federation.experiment, *data)
        self.process: BaseProcess = context.Process(target=serve, args=arguments, daemon=True)  # type: ignore[attr-defined]
        self.process.start()
        theirs.close()  # ours then ends when the worker does
        limit_waiting(ours, federation.experiment.engine.timeout)
        self.channel = Channel(ours)
        self.has_weights = False

    def begin(self, task: EngineTask[Any], weights: Placed | None) -> None:
        """Send a task, and before it the round's weights if they are not there yet."""
        state = self.channel.put(task.own_state())
        try:
            if not self.has_weights:
                self.channel.send({"kind": "round"}, weights)
                self.has_weights = True
            self.channel.send(_message(task), state)
        except OSError:
            self.process.kill()  # it is dead or reads no more; `reply` will find the end of the pipe

    def reply(self) -> tuple[Message, State] | None:
        """Return the worker's reply to its task; None if it has died."""
        try:
            message, tensors = self.channel.receive()
        except (EOFError, OSError):
            return None
        if message["kind"] == "bad input":
            raise InputError(message["message"])
        if message["kind"] == "error":
            if message["place"]:
                raise UserCodeError(message["message"], message["traceback"])
            raise RuntimeError(f"a worker failed:\n{message['traceback']}")
        return message, tensors

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.channel.connection.close()
        self.process.kill()
        self.process.join()


def serve(
    connection: Connection,
    parent: int,
    experiment: Experiment,
    dataset: Dataset,
    partition: list[Tensor],
    frozen_sha256: str,
) -> None:
    """Answer tasks until the pipe closes: the main function of a worker process."""
    live_no_longer_than(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    keep_freed_memory()
    channel = Channel(connection)
    federation = assemble(experiment, dataset, partition)
    weights: Weights = {}
    broadcast: State = {}
    while True:
        try:
            message, tensors = channel.receive()
        except (EOFError, OSError):
            return
        if message["kind"] == "round":
            mine = clone(tensors)  # what user code does to them, no other worker sees
            weights, broadcast = without_prefix("weights", mine), without_prefix("broadcast", mine)
            continue
        try:
            federation.model.check_frozen(frozen_sha256, "of the main process")
            reply, content = _reply(_task_from(message, tensors, weights, broadcast).answer(federation))
        except InputError as error:
            reply, content = {"kind": "bad input", "message": str(error)}, {}
        except (Exception, SystemExit) as error:  # own code may call sys.exit
            found = {"message": describe_user_error(error), "place": user_place(error)}
            reply, content = {"kind": "error", "traceback": traceback.format_exc(), **found}, {}
        channel.send(reply, channel.put(content))


def _message(task: EngineTask[Any]) -> Message:
    """Return a task as a message, without its tensors."""
    match task:
        case Train(job):
            return {"kind": "train", "client": job.client, "round": job.round, "work": job.work}
        case EvaluateValidation():
            return {"kind": "validate", "start": task.start, "stop": task.stop}
        case EvaluateTest():
            return {"kind": "evaluate", "start": task.start, "stop": task.stop}
        case EvaluateClient():
            return {"kind": "evaluate client", "client": task.client, "part": task.part}
        case Personalize():
            settings, folder = task.settings.model_dump(mode="json"), task.folder and str(task.folder)
            return {"kind": "personalize", "client": task.client, "settings": settings, "folder": folder}
    raise TypeError(f"a worker cannot do a {type(task).__name__}")


def _task_from(message: Message, tensors: State, weights: Weights, broadcast: State) -> EngineTask[Any]:
    """Return the task of a message, on the weights of its round."""
    match message:
        case {"kind": "train"}:
            return Train(Job(message["client"], message["round"], weights, broadcast, tensors, message["work"]))
        case {"kind": "evaluate"}:
            return EvaluateTest(weights, message["start"], message["stop"])
        case {"kind": "validate"}:
            return EvaluateValidation(weights, message["start"], message["stop"])
        case {"kind": "evaluate client"}:
            return EvaluateClient(weights, message["client"], message["part"], lambda _: tensors)
    folder = Path(message["folder"]) if message["folder"] else None
    return Personalize(weights, message["client"], PersonalSettings(**message["settings"]), folder, lambda _: tensors)


def _reply(answer: Update | Tally | PersonalResult) -> tuple[Message, State]:
    """Return an answer as a message and its tensors."""
    if isinstance(answer, Update):
        values, tensors = pack_update(answer)
        return {"kind": "update", **values}, tensors
    if isinstance(answer, Tally):
        values = {"losses": answer.losses, "correct": answer.correct, "examples": answer.examples}
        tensors = {**prefixed("added", answer.scores.added), **prefixed("lined-up", answer.scores.lined_up)}
        return {"kind": "tally", "values": values, "primary": answer.primary}, tensors
    return {"kind": type(answer).__name__, "values": asdict(answer)}, {}


def _answer_from(message: Message, tensors: State) -> Any:
    """Return the answer in a reply."""
    if message["kind"] == "update":
        update = unpack_update(message, tensors)
        return replace(update, state=clone(update.state))  # it is kept when the rest of the update is not
    if message["kind"] == PersonalResult.__name__:
        return PersonalResult.from_values(message["values"])
    scores = Scores(without_prefix("added", tensors), without_prefix("lined-up", tensors))
    counts = {name: tuple(counts) for name, counts in message["values"].items()}
    return Tally(**counts, scores=scores, primary=message["primary"])


def _context(federation: Federation) -> BaseContext:
    """Return how to start processes: forked where safe, which shares the data at no cost; otherwise spawned."""
    if sys.platform == "linux" and federation.device.type == "cpu":
        return multiprocessing.get_context("fork")
    import torch.multiprocessing  # passes tensors to spawned processes in shared memory

    return torch.multiprocessing.get_context("spawn")


def limit_waiting(connection: Connection, seconds: float) -> None:
    """Let a send or receive fail, instead of blocking forever, if the other process stops in the middle of it.

    On Windows pipes have no such limit: there only the wait for the beginning of a reply has one.
    """
    if sys.platform == "win32":
        return
    whole = min(math.ceil(seconds), 2**31 - 1)
    limit = struct.pack("ll", whole, 0)  # seconds and microseconds
    with contextlib.closing(socket.socket(fileno=os.dup(connection.fileno()))) as pipe:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            pipe.setsockopt(socket.SOL_SOCKET, option, limit)


def live_no_longer_than(parent: int) -> None:
    """End this process when its parent is killed: it would only hold the run's lock and memory."""
    if sys.platform == "linux":
        death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(death_signal, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)
