"""The engine whose clients are nodes of a Flower federation, simulated or real."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Message
from flwr.serverapp import Grid

from fedsol.core.messages import Job, Missing, ServerState, State, Update
from fedsol.core.weights import Weights
from fedsol.engines.base import Aggregation, Engine
from fedsol.engines.flower import records
from fedsol.engines.flower.nodes import Nodes, receive
from fedsol.engines.flower.strategy import Rounds
from fedsol.errors import InputError, RunError
from fedsol.federation.evaluation import Tally
from fedsol.federation.federation import Federation
from fedsol.federation.personal import PersonalResult
from fedsol.federation.personal_settings import PersonalSettings
from fedsol.federation.sampling import sample_size
from fedsol.runs.directory import RunDirectory

log = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds between two looks for replies in a deployment."""


class GridEngine(Engine):
    """Jobs go out as messages and come back as replies.

    In a deployment a node that fails or does not answer costs its own update; in a simulation a client that fails
    stops the run, as on every engine of one machine.
    """

    def __init__(self, federation: Federation, grid: Grid | None, run: Path | None) -> None:
        check_privacy(federation)
        self._federation = federation
        self._grid = grid
        self._run = run
        self._nodes: Nodes | None = None
        self._round = 0
        self._rounds = Rounds(federation.experiment.privacy, sample_size(federation.experiment, federation.clients))
        self._rounds.inner.timeout = federation.experiment.engine.timeout
        self.keeps_states = run is not None  # a deployment: nodes are machines of their own, and may fail alone

    def connect(self) -> Grid:
        """The grid that messages go through."""
        assert self._grid is not None
        return self._grid

    def wait(self) -> None:
        """A moment between two looks for replies."""
        time.sleep(PAUSE)

    def train(self, jobs: Sequence[Job], state_of: Callable[[int], State]) -> Iterator[Update | Missing]:
        if not jobs:
            return
        self._round = jobs[0].round
        strategy, settings = self._rounds.inner, self._federation.experiment.engine
        strategy.nodes = self._all_nodes().awaited(
            [job.client for job in jobs],
            self._federation.experiment.server.min_updates,
            settings.patience,
            settings.timeout,
        )
        if not strategy.nodes:
            raise RunError(
                f"round {self._round}: none of its clients' nodes is connected; the run stops and can be resumed"
            )
        strategy.jobs = [replace(job, state=state_of(job.client)) for job in jobs if job.client in strategy.nodes]
        clients = [job.client for job in strategy.jobs]
        messages = self._rounds.messages(self._round, jobs[0].weights, self._config(), self.connect())
        strategy.jobs = ()  # with the states they hold
        answered = set()
        for client, reply in self._exchange(dict(zip(clients, messages, strict=True))):
            answered.add(client)
            yield self._answer(reply, client)
        for job in jobs:
            if job.client not in answered:
                reached = job.client in strategy.nodes
                reason = "no answer in time" if reached else "its node is not connected"
                yield replace(self._missing(job.client, reason), reached=reached)

    def aggregate(self, before: ServerState, updates: Sequence[Update], rule: Aggregation) -> ServerState:
        return self._rounds.aggregate(self._round, before, updates, rule)

    def evaluate(self, weights: Weights) -> Tally:
        return self._federation.evaluate(weights)

    def evaluate_clients(self, weights: Weights, clients: Sequence[int]) -> Iterator[tuple[int, Tally]]:
        strategy = self._rounds.inner
        strategy.nodes = self._all_nodes().connected(clients)
        messages = strategy.configure_evaluate(
            self._round, records.to_arrays(weights), ConfigRecord(self._config()), self.connect()
        )
        for client, reply in self._exchange(dict(zip(strategy.nodes, messages, strict=True))):
            if reply.has_error():
                self._missing(client, f"its test failed: {reply.error.reason}")
                log.warning("the test of client %d failed: %s", client, reply.error.reason)
                continue
            try:
                yield client, records.tally_from(reply.content)
            except records.MalformedError as error:
                log.warning("the test of client %d is left out: it %s", client, error)

    def personalize(
        self, weights: Weights, clients: Sequence[int], settings: PersonalSettings
    ) -> Iterator[PersonalResult]:
        """Clients whose node is not there or fails are left out; in a simulation that is an error."""
        timeout, config, arrays = self._federation.experiment.engine.timeout, self._config(), records.to_arrays(weights)
        messages = {
            client: Message(
                records.personal_records(arrays, config, client, settings), node, "query.personalize", ttl=timeout
            )
            for client, node in self._all_nodes().connected(clients).items()
        }
        for client, reply in self._exchange(messages):
            try:
                if reply.has_error():
                    raise records.MalformedError(f"failed: {reply.error.reason}")
                yield records.personal_from(reply.content, client, settings)
            except records.MalformedError as error:
                self._missing(client, str(error))
                log.warning("the personal model of client %d is left out: it %s", client, error)

    def close(self) -> None:
        pass

    def _exchange(self, messages: Mapping[int, Message]) -> Iterator[tuple[int, Message]]:
        return receive(self.connect(), messages, self._federation.experiment.engine.timeout, self.wait)

    def _all_nodes(self) -> Nodes:
        if self._nodes is None:
            self._nodes = Nodes(self.connect(), self._federation.clients, self.wait)
        return self._nodes

    def _answer(self, reply: Message, client: int) -> Update | Missing:
        if reply.has_error():
            return self._missing(client, reply.error.reason or f"Flower's error {reply.error.code}")
        try:
            return records.update_from(reply.content, client)
        except records.MalformedError as error:
            return Missing(client, str(error), malformed=True)

    def _missing(self, client: int, reason: str) -> Missing:
        if not self.keeps_states:
            raise RunError(f"client {client} failed in Flower's simulation: {reason}")
        return Missing(client, reason)

    def _config(self) -> dict[str, Any]:
        """What goes with every message: the experiment, which run it is, and how far back the run may go."""
        config: dict[str, Any] = {"experiment": self._federation.experiment.to_toml()}
        if self._run is None:
            return config
        run = RunDirectory(self._run)
        return {**config, "run": run.read_id(), "oldest": run.checkpoints.oldest_round()}


def check_privacy(federation: Federation) -> None:
    """Raises `InputError` for what the noise would not cover, or could not be added to."""
    if federation.experiment.privacy.clipping == "off":
        return
    name = federation.experiment.algorithm["name"]
    if federation.initial_state():
        raise InputError(f"privacy.clipping: is not allowed with {name}: its clients' states are not protected")
    if federation.model.buffers:
        raise InputError("privacy.clipping: is not allowed with a model that has running statistics (batch norm)")
    if any(tensor.ndim == 0 for tensor in federation.initial_weights().values()):
        raise InputError("privacy.clipping: is not allowed with a model that has weights of no dimension")
