"""What a worker process does: it trains clients and evaluates batches until the pipe closes."""

import ctypes
import os
import signal
import sys
import traceback
from dataclasses import asdict
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from fedsol.config.experiment import Experiment
from fedsol.core.messages import Job, State, pack_update
from fedsol.core.weights import Weights, without_prefix
from fedsol.data.types import Dataset
from fedsol.engines.channel import Channel, Message
from fedsol.errors import InputError
from fedsol.federation.federation import Federation, assemble
from fedsol.federation.personal import personalize_client
from fedsol.federation.personal_settings import PersonalSettings


def serve(
    connection: Connection, parent: int, experiment: Experiment, dataset: Dataset, partition: list[Tensor]
) -> None:
    """The main function of a worker process."""
    live_no_longer_than(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    channel = Channel(connection)
    worker = Worker(assemble(experiment, dataset, partition))
    while True:
        try:
            message, tensors = channel.receive()
        except (EOFError, OSError):
            return
        if message["kind"] == "round":
            worker.begin_round(tensors)
            continue
        try:
            reply, content = worker.answer(message, tensors)
        except InputError as error:
            reply, content = {"kind": "bad input", "message": str(error)}, {}
        except Exception:
            reply, content = {"kind": "error", "traceback": traceback.format_exc()}, {}
        channel.send(reply, content)


class Worker:
    """Answers messages; keeps the global weights of the round, which come once for all its jobs."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._weights: Weights = {}
        self._broadcast: State = {}

    def begin_round(self, tensors: State) -> None:
        """Takes the global weights and the broadcast of a round."""
        self._weights = without_prefix("weights", tensors)
        self._broadcast = without_prefix("broadcast", tensors)

    def answer(self, message: Message, tensors: State) -> tuple[Message, State]:
        """What came of a task."""
        if message["kind"] == "train":
            job = Job(message["client"], message["round"], self._weights, self._broadcast, tensors, message["work"])
            values, content = pack_update(self._federation.train(job))
            return {"kind": "update", **values}, content
        if message["kind"] == "evaluate":
            indices = torch.arange(message["start"], message["stop"])
            return {"kind": "tally", **asdict(self._federation.evaluate(self._weights, indices))}, {}
        if message["kind"] == "evaluate client":
            tally = self._federation.evaluate_client(self._weights, message["client"])
            return {"kind": "tally", "client": message["client"], **asdict(tally)}, {}
        if message["kind"] == "personalize":
            settings = PersonalSettings(**message["settings"])
            result = personalize_client(self._federation, self._weights, message["client"], settings)
            return {"kind": "personal", **result.as_values()}, {}
        raise ValueError(f"a worker knows nothing of {message['kind']!r}")


def live_no_longer_than(parent: int) -> None:
    """A worker whose parent was killed would hold the run's lock and memory for nothing."""
    if sys.platform == "linux":
        death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(death_signal, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before the call
            os._exit(1)
