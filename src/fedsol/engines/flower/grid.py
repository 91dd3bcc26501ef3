"""The engine whose clients are nodes of a Flower federation, simulated or real."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from flwr.app import Message, MessageType
from flwr.serverapp import Grid
from flwr.supercore.differential_privacy import KEY_CLIPPING_NORM

from fedsol.core.messages import EPSILONS, Missing
from fedsol.engines.base import Engine
from fedsol.engines.flower import records
from fedsol.engines.flower.nodes import Nodes, receive
from fedsol.errors import InputError, RunError
from fedsol.federation.federation import Federation
from fedsol.federation.tasks import A, EngineTask, EvaluateClient, Personalize, Train
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
        self._federation = federation
        self._settings = federation.experiment.engine
        self._privacy = federation.experiment.privacy
        self._grid = grid
        self._run = run
        self.keeps_states = run is not None  # a deployment: nodes are separate machines, and may fail alone

    def connect(self) -> Grid:
        """Return the grid that messages go through."""
        assert self._grid is not None
        return self._grid

    def wait(self) -> None:
        """Pause between two polls for replies."""
        time.sleep(PAUSE)

    def run(self, tasks: Sequence[EngineTask[A]]) -> Iterator[tuple[EngineTask[A], A | Missing]]:
        """Evaluate the server's own sets on the server itself; send everything else to the clients' nodes."""
        by_client: dict[int, Any] = {
            task.client: task for task in tasks if isinstance(task, Train | EvaluateClient | Personalize)
        }
        if not by_client:
            yield from ((task, task.answer(self._federation)) for task in tasks)
            return
        if not self.keeps_states and any(isinstance(task, Personalize) and task.settings.save for task in tasks):
            raise InputError(
                "save: is not allowed in Flower's simulation; use engine.kind = 'workers', with the same results"
            )
        nodes = self._nodes_for(list(by_client), tasks[0])
        messages = self._messages({client: by_client[client] for client in nodes}, nodes)
        answered = set()
        for client, reply in receive(self.connect(), messages, self._settings.timeout, self.wait):
            answered.add(client)
            yield by_client[client], self._answer(by_client[client], client, reply)
        for client, task in by_client.items():
            if client not in answered:
                reason = "no answer in time" if client in nodes else "its node is not connected"
                yield task, replace(self._missing(client, reason), reached=client in nodes)

    @cached_property
    def _nodes(self) -> Nodes:
        return Nodes(self.connect(), self._federation.clients, self.wait)

    def _nodes_for(self, clients: Sequence[int], task: EngineTask[Any]) -> dict[int, int]:
        """Return the nodes of the clients; training waits for them, evaluation does not.

        In a simulation every task waits for all of them: they are there as soon as Ray has started them.
        """
        if not self.keeps_states:
            return self._nodes.awaited(clients, len(clients), 0.0, self._settings.timeout)
        if not isinstance(task, Train):
            return self._nodes.connected(clients)
        at_least = self._federation.experiment.server.min_updates
        nodes = self._nodes.awaited(clients, at_least, self._settings.patience, self._settings.timeout)
        if not nodes:
            raise RunError(
                f"round {task.job.round}: no node of its clients is connected; the run stops and can be resumed"
            )
        return nodes

    def _messages(self, tasks: Mapping[int, EngineTask[Any]], nodes: Mapping[int, int]) -> dict[int, Message]:
        """Return one message per client, all with the same arrays of weights, experiment and id of the run."""
        if not tasks:
            return {}
        config: dict[str, Any] = {
            "experiment": self._federation.experiment.to_toml(),
            records.FROZEN: self._federation.model.frozen_sha256,
        }
        if self._run is not None:
            run = RunDirectory(self._run)
            config |= {"run": run.read_id(), "oldest": run.checkpoints.oldest_round()}
        if self._privacy.clipping == "client":
            config[KEY_CLIPPING_NORM] = self._privacy.clip_norm
        weights = records.to_arrays(next(iter(tasks.values())).shared()[0])
        return {
            client: Message(
                records.task_records(task, weights, config),
                nodes[client],
                MESSAGE_TYPES[type(task)],
                ttl=self._settings.timeout,
            )
            for client, task in tasks.items()
        }

    def _answer(self, task: EngineTask[Any], client: int, reply: Message) -> Any:
        if reply.has_error():
            missing = self._missing(client, reply.error.reason or f"Flower's error {reply.error.code}")
            return replace(missing, abstained=reply.error.code == records.ABSTAINED)
        try:
            match task:
                case Train():
                    own = self.keeps_states and self._privacy.covers_samples
                    return records.update_from(reply.content, client, EPSILONS if own else ("train_loss",))
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
