"""The engine that trains clients side by side in worker processes, one torch thread each."""

import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess

from fedsol.core.files import tensors_to_bytes
from fedsol.core.messages import Job, State, Update, unpack_update
from fedsol.core.weights import Weights, prefixed
from fedsol.engines.base import Engine
from fedsol.engines.channel import Channel, Message
from fedsol.engines.worker_process import serve
from fedsol.errors import InputError, RunError
from fedsol.federation.evaluation import Tally
from fedsol.federation.federation import Federation
from fedsol.federation.personal import PersonalResult
from fedsol.federation.personal_settings import PersonalSettings

SMALLEST_PART = 1000
"""Examples below which a part of the test set is not worth a message of its own."""

ATTEMPTS = 3
"""How often a job is tried before a worker that dies over it stops the run."""


class WorkersEngine(Engine):
    """A pool of processes, started once. The data is shared with them; global weights go to each once a round.

    A worker that dies is replaced, and its job done again; since a job is a pure function, nothing is lost but time.
    """

    def __init__(self, federation: Federation, count: int) -> None:
        self._federation = federation
        self._context = _context(federation)
        self._workers = [_Worker(self._context, federation) for _ in range(count)]
        self._weights: Weights | None = None
        self._broadcast: State = {}
        self._round = b""

    def train(self, jobs: Sequence[Job], state_of: Callable[[int], State]) -> Iterator[Update]:
        if not jobs:
            return
        self._begin_round(jobs[0].weights, jobs[0].broadcast)
        sizes = {job.client: len(self._federation.partition[job.client]) for job in jobs}
        longest_first = sorted(jobs, key=lambda job: -sizes[job.client] * job.work)
        tasks = [
            _Task({"kind": "train", "client": job.client, "round": job.round, "work": job.work}, job.client)
            for job in longest_first
        ]
        for message, tensors in self._run(tasks, lambda task: state_of(task.client)):
            yield unpack_update(message, tensors)

    def evaluate(self, weights: Weights) -> Tally:
        self._begin_round(weights, {})
        size, examples = self._federation.experiment.server.evaluate_batch, len(self._federation.dataset.test)
        parts = max(len(self._workers), min(4 * len(self._workers), examples // SMALLEST_PART))
        per_part = -(-examples // (parts * size)) * size  # whole batches, so that they are the same everywhere
        tasks = [
            _Task({"kind": "evaluate", "start": start, "stop": min(start + per_part, examples)}, -1)
            for start in range(0, examples, per_part)
        ]
        tallies = [_tally(message) for message, _ in self._run(tasks, lambda _: {})]
        total = tallies[0]
        for tally in tallies[1:]:
            total = total + tally
        return total

    def evaluate_clients(self, weights: Weights, clients: Sequence[int]) -> Iterator[tuple[int, Tally]]:
        self._begin_round(weights, {})
        tasks = [_Task({"kind": "evaluate client", "client": client}, client) for client in clients]
        for message, _ in self._run(tasks, lambda _: {}):
            yield message["client"], _tally(message)

    def personalize(
        self, weights: Weights, clients: Sequence[int], settings: PersonalSettings
    ) -> Iterator[PersonalResult]:
        self._begin_round(weights, {})
        values = settings.model_dump(mode="json")
        longest_first = sorted(clients, key=lambda client: -len(self._federation.partition[client]))
        tasks = [
            _Task({"kind": "personalize", "client": client, "settings": values}, client) for client in longest_first
        ]
        for message, _ in self._run(tasks, lambda _: {}):
            yield PersonalResult.from_values({key: value for key, value in message.items() if key != "kind"})

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()

    def _begin_round(self, weights: Weights, broadcast: State) -> None:
        """Makes ready what every worker needs before its first task; weights it has already are not sent again."""
        if weights is self._weights and broadcast.keys() == self._broadcast.keys() == set():
            return
        self._weights, self._broadcast = weights, broadcast
        self._round = tensors_to_bytes({**prefixed("weights", weights), **prefixed("broadcast", broadcast)})
        for worker in self._workers:
            worker.has_weights = False

    def _run(self, tasks: Sequence["_Task"], state_for: Callable[["_Task"], State]) -> Iterator[tuple[Message, State]]:
        """Deals the tasks out to whoever is free, and gives the answers as they come."""
        waiting = deque(tasks)
        while waiting or any(worker.task for worker in self._workers):
            for worker in self._workers:
                if worker.task is None and waiting:
                    worker.begin(waiting.popleft(), self._round, state_for)
            busy = {worker.channel.connection: worker for worker in self._workers if worker.task}
            for ready in wait(list(busy)):
                worker = busy[ready]  # type: ignore[index]
                answer = worker.answer()
                if answer is None:
                    waiting.appendleft(self._replace(worker))
                else:
                    yield answer

    def _replace(self, dead: "_Worker") -> "_Task":
        """Starts another worker in the place of a dead one; returns the task that it died over."""
        task = dead.task
        assert task is not None
        task.attempts += 1
        dead.stop()
        if task.attempts >= ATTEMPTS:
            raise RunError(
                f"a worker process died {ATTEMPTS} times over the same job ({task.message}), the last time with exit "
                f"code {dead.process.exitcode}: perhaps this machine has too little memory for engine.workers = "
                f"{len(self._workers)}"
            )
        self._workers[self._workers.index(dead)] = _Worker(self._context, self._federation)
        return task


class _Task:
    """A message to be answered by some worker, and how often that was tried."""

    def __init__(self, message: Message, client: int) -> None:
        self.message = message
        self.client = client
        self.attempts = 0


class _Worker:
    """A worker process as the pool sees it."""

    def __init__(self, context: BaseContext, federation: Federation) -> None:
        ours, theirs = context.Pipe()
        arguments = (theirs, os.getpid(), federation.experiment, federation.dataset, federation.partition)
        self.process: BaseProcess = context.Process(target=serve, args=arguments, daemon=True)  # type: ignore[attr-defined]
        self.process.start()
        theirs.close()  # ours then ends when the worker does
        self.channel = Channel(ours)
        self.task: _Task | None = None
        self.has_weights = False

    def begin(self, task: _Task, weights: bytes, state_for: Callable[[_Task], State]) -> None:
        """Sends a task, and before it the round's weights if they are not there yet."""
        self.task = task
        state = state_for(task)
        try:
            if not self.has_weights:
                self.channel.send_bytes({"kind": "round"}, weights)
                self.has_weights = True
            self.channel.send(task.message, state)
        except OSError:
            return  # the worker is dead, which `answer` will find

    def answer(self) -> tuple[Message, State] | None:
        """The worker's answer to its task; None if it has died."""
        try:
            message, tensors = self.channel.receive()
        except (EOFError, OSError):
            return None
        if message["kind"] == "bad input":
            raise InputError(message["message"])
        if message["kind"] == "error":
            raise RuntimeError(f"a worker failed:\n{message['traceback']}")
        self.task = None
        return message, tensors

    def stop(self) -> None:
        """Ends the process, whatever it is doing."""
        self.channel.close()
        self.process.kill()
        self.process.join()


def _tally(message: Message) -> Tally:
    return Tally(tuple(message["losses"]), tuple(message["correct"]), tuple(message["examples"]))


def _context(federation: Federation) -> BaseContext:
    """How processes are started: forked where that is safe, which shares the data at no cost; else spawned."""
    if sys.platform == "linux" and federation.device.type == "cpu":
        return multiprocessing.get_context("fork")
    import torch.multiprocessing  # passes tensors to spawned processes in shared memory

    return torch.multiprocessing.get_context("spawn")
