"""The engine whose clients are nodes of a Flower federation, simulated or real."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType
from flwr.serverapp import Grid

from fedsol.core.messages import Missing, ServerState, Update
from fedsol.engines.base import Aggregation, Engine
from fedsol.engines.flower import records
from fedsol.engines.flower.nodes import Nodes, receive
from fedsol.engines.flower.privacy import PrivateRounds
from fedsol.errors import InputError, RunError
from fedsol.federation.federation import Federation
from fedsol.federation.sampling import sample_size
from fedsol.federation.tasks import A, EvaluateClient, Personalize, Task, Train
from fedsol.runs.directory import RunDirectory

PAUSE = 1.0
"""Seconds between two polls for replies in a deployment."""

MESSAGE_TYPES = {
    Train: MessageType.TRAIN,
    EvaluateClient: MessageType.EVALUATE,
    Personalize: f"{MessageType.QUERY}.personalize",
}


class GridEngine(Engine):
    """Tasks go out as messages and come back as replies.

    In a deployment a node that fails or does not answer only loses its own update; in a simulation a client that fails
    stops the run, as on every engine on one machine.
    """

    def __init__(self, federation: Federation, grid: Grid | None, run: Path | None) -> None:
        check_privacy(federation)
        self._federation = federation
        self._grid = grid
        self._run = run
        self._nodes: Nodes | None = None
        experiment = federation.experiment
        self._rounds = PrivateRounds(experiment.privacy, sample_size(experiment, federation.clients))
        self.keeps_states = run is not None  # a deployment: nodes are separate machines, and may fail alone

    def connect(self) -> Grid:
        """Return the grid that messages go through."""
        assert self._grid is not None
        return self._grid

    def wait(self) -> None:
        """Pause between two polls for replies."""
        time.sleep(PAUSE)

    def run(self, tasks: Sequence[Task[A]]) -> Iterator[tuple[Task[A], A | Missing]]:
        """Evaluate the test set on the server itself; send everything else to the clients' nodes."""
        by_client = {client: task for task in tasks if (client := _client_of(task)) is not None}
        if not by_client:
            yield from ((task, task.answer(self._federation)) for task in tasks)
            return
        nodes = self._nodes_for(list(by_client), tasks[0])
        answered = set()
        for client, reply in self._exchange(self._messages([by_client[client] for client in nodes], nodes)):
            answered.add(client)
            yield by_client[client], self._answer(by_client[client], client, reply)
        for client, task in by_client.items():
            if client not in answered:
                reason = "no answer in time" if client in nodes else "its node is not connected"
                yield task, replace(self._missing(client, reason), reached=client in nodes)

    def aggregate(self, before: ServerState, updates: Sequence[Update], rule: Aggregation) -> ServerState:
        return self._rounds.aggregate(before, updates, rule)

    def _nodes_for(self, clients: Sequence[int], task: Task[Any]) -> dict[int, int]:
        """Return the nodes of the clients; training waits for them, evaluation does not."""
        if not isinstance(task, Train):
            return self._all_nodes().connected(clients)
        settings = self._federation.experiment.engine
        at_least = self._federation.experiment.server.min_updates
        nodes = self._all_nodes().awaited(clients, at_least, settings.patience, settings.timeout)
        if not nodes:
            raise RunError(
                f"round {task.job.round}: none of its clients' nodes is connected; the run stops and can be resumed"
            )
        return nodes

    def _messages(self, tasks: Sequence[Task[Any]], nodes: Mapping[int, int]) -> dict[int, Message]:
        """Return one message per client. All share the arrays of the weights."""
        if not tasks:
            return {}
        timeout = self._federation.experiment.engine.timeout

        def messages_of(arrays: ArrayRecord, config: ConfigRecord) -> list[Message]:
            return [
                Message(records.task_records(task, arrays, config), node, MESSAGE_TYPES[type(task)], ttl=timeout)
                for task, node in zip(tasks, nodes.values(), strict=True)
            ]

        arrays, config = records.to_arrays(tasks[0].shared()[0]), ConfigRecord(self._config())
        if isinstance(tasks[0], Train):
            messages = self._rounds.train_messages(messages_of, arrays, config, self.connect())
        else:
            messages = messages_of(arrays, config)
        return dict(zip(nodes, messages, strict=True))

    def _exchange(self, messages: Mapping[int, Message]) -> Iterator[tuple[int, Message]]:
        return receive(self.connect(), messages, self._federation.experiment.engine.timeout, self.wait)

    def _all_nodes(self) -> Nodes:
        if self._nodes is None:
            self._nodes = Nodes(self.connect(), self._federation.clients, self.wait)
        return self._nodes

    def _answer(self, task: Task[Any], client: int, reply: Message) -> Any:
        if reply.has_error():
            return self._missing(client, reply.error.reason or f"Flower's error {reply.error.code}")
        try:
            match task:
                case Train():
                    return records.update_from(reply.content, client)
                case EvaluateClient():
                    return records.tally_from(reply.content)
                case Personalize():
                    return records.personal_from(reply.content, client, task.settings)
        except records.MalformedError as error:
            return Missing(client, str(error), malformed=True)

    def _missing(self, client: int, reason: str) -> Missing:
        if not self.keeps_states:
            raise RunError(f"client {client} failed in Flower's simulation: {reason}")
        return Missing(client, reason)

    def _config(self) -> dict[str, Any]:
        """Return the configuration of every message: experiment, id of the run, oldest round it may return to."""
        config: dict[str, Any] = {"experiment": self._federation.experiment.to_toml()}
        if self._run is None:
            return config
        run = RunDirectory(self._run)
        return {**config, "run": run.read_id(), "oldest": run.checkpoints.oldest_round()}


def _client_of(task: Task[Any]) -> int | None:
    return task.client if isinstance(task, Train | EvaluateClient | Personalize) else None


def check_privacy(federation: Federation) -> None:
    """Raise `InputError` for what the noise would not cover, or could not be added to."""
    if federation.experiment.privacy.clipping == "off":
        return
    name = federation.experiment.algorithm["name"]
    if federation.initial_state():
        raise InputError(f"privacy.clipping: is not allowed with {name}: its clients' states would not be protected")
    if federation.model.buffers:
        raise InputError("privacy.clipping: is not allowed with a model that has running statistics (batch norm)")
    if any(tensor.ndim == 0 for tensor in federation.initial_weights().values()):
        raise InputError("privacy.clipping: is not allowed with a model that has weights of no dimension")
