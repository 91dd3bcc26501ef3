"""Runs to compare with, each trained once, and callbacks that watch or end a run."""

import os
import signal
from functools import cache

import fedsol
from fedsol import Callback, Experiment
from tests.support.tensors import same_tensors


def trained(experiment: Experiment) -> fedsol.Run:
    """Return the run of an experiment, trained once per process; tests compare with it and never change it."""
    return _trained(experiment.model_dump_json())


@cache
def _trained(text: str) -> fedsol.Run:
    return fedsol.train(Experiment.model_validate_json(text))


def rows_without_seconds(run):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in run.rows]


def assert_same_run(one, other):
    assert same_tensors(one.weights, other.weights)
    assert rows_without_seconds(one) == rows_without_seconds(other)


class StopAfter(Callback):
    """Ends a run as Ctrl-C would, after a round."""

    def __init__(self, round_number):
        self.round_number = round_number

    def round_finished(self, result):
        if result.round == self.round_number:
            raise KeyboardInterrupt


class Recorder(Callback):
    """Remembers what it was called with."""

    def __init__(self):
        self.events = []
        self.results = []

    def started(self, federation, rows):
        self.events.append("started")

    def round_started(self, round_number, clients):
        self.events.append(f"round {round_number}")

    def client_finished(self, update):
        self.events.append("client")

    def round_finished(self, result):
        self.events.append("done")
        self.results.append(result)

    def finished(self, run):
        self.events.append("finished")


def killed_at_flush(train, number):
    """Whether the run was killed at its n-th flush to the disk; False if it came to its end before."""
    process = os.fork()
    if not process:
        flush, count = os.fsync, [0]

        def counted(descriptor):
            count[0] += 1
            if count[0] == number:
                os.kill(os.getpid(), signal.SIGKILL)
            flush(descriptor)

        os.fsync = counted
        try:
            train()
        finally:
            os._exit(0)
    _, status = os.waitpid(process, 0)
    return os.WIFSIGNALED(status)
