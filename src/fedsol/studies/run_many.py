"""Many runs, one after another or several at a time; each is a cell of a table and has a directory of its own."""

import json
import multiprocessing
import os
import signal
import sys
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
from fedsol.runs.directory import RunDirectory
from fedsol.runs.run import Run
from fedsol.training.loop import Callback, train

Watch = Callable[[str], Sequence[Callback]]


@dataclass(frozen=True)
class Cell:
    """One run of a table."""

    label: str
    experiment: Experiment
    path: Path


@dataclass(frozen=True)
class Outcome:
    """The run of a cell, or why it failed."""

    cell: Cell
    run: Run | None = None
    failure: str | None = None


def refuse_taken(cells: Sequence[Cell], resume: bool) -> None:
    """Without `resume`, no cell may hold a run already."""
    if not resume and (taken := [cell.path for cell in cells if RunDirectory(cell.path).exists]):
        raise InputError(f"{taken[0]}: holds a run already; resume (--resume) or choose another directory (--out)")


def check_jobs(jobs: int | None) -> None:
    """Refuses fewer than one run at a time."""
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs: {jobs} is not allowed; it must be 1 or more")


def default_jobs(cells: Sequence[Cell]) -> int:
    """As many runs at a time as there are cores, on processors; one after another on a GPU, which they would share."""
    on_gpu = torch.cuda.is_available() and any(cell.experiment.engine.device != "cpu" for cell in cells)
    return 1 if on_gpu else max(1, min(available_cores(), len(cells)))


def run_cells(cells: Sequence[Cell], watch: Watch, resume: bool, jobs: int = 1) -> Iterator[Outcome]:
    """Runs the cells and gives each outcome as it comes; a run that fails does not keep the others from being made.

    With several jobs, each run is one process that trains its clients one after another, since for small models the
    messages between workers cost more than they save. Results are bitwise the same either way.
    """
    refuse_taken(cells, resume)
    if jobs > 1:
        yield from _side_by_side(cells, resume, jobs)
        return
    for cell in cells:
        try:
            yield Outcome(cell, train(cell.experiment, watch(cell.label), cell.path, resume))
        except RunError as error:
            yield Outcome(cell, failure=f"{cell.label}: {error}")


def _side_by_side(cells: Sequence[Cell], resume: bool, jobs: int) -> Iterator[Outcome]:
    waiting = deque(cells)
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
    """One run in a process of its own. It leaves its results in its directory; only an error crosses the pipe."""

    def __init__(self, cell: Cell, resume: bool) -> None:
        self.cell = cell
        forks = sys.platform == "linux" and not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        context = multiprocessing.get_context("fork" if forks else "spawn")
        self.connection, theirs = context.Pipe(duplex=False)
        local = cell.experiment.override({"engine.kind": "local"})
        arguments = (theirs, os.getpid(), local.to_toml(), cell.path, resume)
        self._process: BaseProcess = context.Process(target=_train_cell, args=arguments)  # type: ignore[attr-defined]
        self._process.start()
        theirs.close()  # ours then ends when the process does

    def outcome(self) -> Outcome:
        """What came of the run, once the process has said so or died."""
        try:
            message = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            message = {"kind": "died"}
        self._process.join()
        if message["kind"] == "done":
            return Outcome(self.cell, Run.load(self.cell.path))
        if message["kind"] == "bad input":
            raise InputError(message["text"])
        if message["kind"] == "interrupted":
            raise KeyboardInterrupt
        text = message.get("text", f"its process ended with exit code {self._process.exitcode}")
        return Outcome(self.cell, failure=f"{self.cell.label}: {text}")

    def interrupt(self) -> None:
        """As Ctrl-C does: the last finished round is saved."""
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, signal.SIGINT)
        self._process.join()


def _train_cell(connection: Connection, parent: int, experiment: str, path: Path, resume: bool) -> None:
    """The main function of a cell's process."""
    import tomllib

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
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the second of two signals must not tear the message
        message = {"kind": "interrupted"}
    connection.send_bytes(json.dumps(message).encode())
