"""Many runs, one after another or several at a time, each in its own directory."""

import json
import multiprocessing
import os
import signal
import sys
import tomllib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from fedsol.config.experiment import Experiment
from fedsol.engines import available_cores
from fedsol.engines.workers import live_no_longer_than
from fedsol.errors import InputError, RunError
from fedsol.federation.optimizer import check_optimizer
from fedsol.runs.directory import RunDirectory
from fedsol.runs.run import Run
from fedsol.training.callbacks import Callback
from fedsol.training.loop import train

MakeCallbacks = Callable[[str], Sequence[Callback]]
"""The callbacks of a run, by its label."""


@dataclass(frozen=True)
class RunSpec:
    """An experiment, its label, and its directory."""

    label: str
    experiment: Experiment
    path: Path


@dataclass(frozen=True)
class Outcome:
    """A finished run, or the reason it failed."""

    spec: RunSpec
    run: Run | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Study:
    """Where and how a comparison, sweep or search runs."""

    out: Path
    seeds: Sequence[int]
    resume: bool = False
    jobs: int | None = None
    """Runs at a time (default: one per core)."""
    callbacks: MakeCallbacks = lambda _: ()
    """Used when runs follow one another."""
    finished: Callable[[Outcome], None] = lambda _: None
    """Called after every run."""
    data: object = None
    """The data itself, if it is in memory."""


def default_jobs(specs: Sequence[RunSpec]) -> int:
    """Return one job per core, or a single one on a GPU, which several runs would share."""
    on_gpu = torch.cuda.is_available() and any(spec.experiment.engine.device != "cpu" for spec in specs)
    return 1 if on_gpu else max(1, min(available_cores(), len(specs)))


def run_many(
    specs: Sequence[RunSpec], callbacks: MakeCallbacks, resume: bool, jobs: int | None = 1, data: object = None
) -> Iterator[Outcome]:
    """Yield every outcome as soon as it is known. A run that fails does not stop the others.

    With several jobs, each run is one process that trains its clients one after another: for small models, messages
    between workers cost more than they save. Results are bitwise the same either way.
    """
    if not resume and (taken := [spec.path for spec in specs if RunDirectory(spec.path).exists]):
        raise InputError(f"{taken[0]}: already has a run; resume it (resume), or choose another directory (out)")
    for spec in specs:
        check_optimizer(spec.experiment.client)
    jobs = default_jobs(specs) if jobs is None else jobs
    if jobs > 1:
        if data is not None:
            raise InputError(f"jobs: must be 1 with data in memory (got {jobs}); or save the data as a file")
        yield from _side_by_side(specs, resume, jobs)
        return
    for spec in specs:
        try:
            yield Outcome(spec, train(spec.experiment, callbacks(spec.label), spec.path, resume, data=data))
        except RunError as error:
            yield Outcome(spec, failure=f"{spec.label}: {error}")


def _side_by_side(specs: Sequence[RunSpec], resume: bool, jobs: int) -> Iterator[Outcome]:
    waiting = deque(specs)
    running: dict[Connection, _Process] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                process = _Process(waiting.popleft(), resume)
                running[process.connection] = process
            for ready in wait(list(running)):
                process = running.pop(ready)  # type: ignore[call-overload]
                yield process.outcome()
    finally:
        for process in running.values():
            process.interrupt()


class _Process:
    """One run in its own process. Results are read from its directory; only errors are sent."""

    def __init__(self, spec: RunSpec, resume: bool) -> None:
        self.spec = spec
        forks = sys.platform == "linux" and not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        context = multiprocessing.get_context("fork" if forks else "spawn")
        self.connection, theirs = context.Pipe(duplex=False)
        local = spec.experiment.override({"engine.kind": "local"})
        arguments = (theirs, os.getpid(), local.to_toml(), spec.path, resume)
        self._process: BaseProcess = context.Process(target=_train, args=arguments)  # type: ignore[attr-defined]
        self._process.start()
        theirs.close()  # ours then ends when the process does

    def outcome(self) -> Outcome:
        """Return the outcome, once the process has sent it or died."""
        try:
            message = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            message = {"kind": "died"}
        self._process.join()
        if message["kind"] == "done":
            return Outcome(self.spec, Run.load(self.spec.path))
        if message["kind"] == "bad input":
            raise InputError(message["text"])
        if message["kind"] == "interrupted":
            raise KeyboardInterrupt
        text = message.get("text", f"its process ended with exit code {self._process.exitcode}")
        return Outcome(self.spec, failure=f"{self.spec.label}: {text}")

    def interrupt(self) -> None:
        """Stop as Ctrl-C does: the last finished round is saved."""
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, signal.SIGINT)
        self._process.join()


def _train(connection: Connection, parent: int, experiment: str, path: Path, resume: bool) -> None:
    """Train in this process and send how it ended."""
    live_no_longer_than(parent)
    torch.set_num_threads(1)
    try:
        train(Experiment(**tomllib.loads(experiment)), (), path, resume)
        message = {"kind": "done"}
    except InputError as error:
        message = {"kind": "bad input", "text": str(error)}
    except RunError as error:
        message = {"kind": "failed", "text": str(error)}
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second signal must not tear the message
        message = {"kind": "interrupted"}
    connection.send_bytes(json.dumps(message).encode())
