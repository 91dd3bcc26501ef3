"""Which node of a Flower federation is which client."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedsol.engines.flower.records import METRICS
from fedsol.errors import RunError

log = logging.getLogger(__name__)

SECONDS_TO_ANSWER = 60.0
"""How long a node may take to say which client it is, and how long until one that did not is asked again."""

SECONDS_OF_SILENCE = 10.0
"""How long nodes may be awaited before a word is said about it."""


class Nodes:
    """Node ids are random; a client is found by the `partition-id` that its node tells when it is asked, once.

    Of several nodes that are the same client, the first that said so counts while it is connected.
    """

    def __init__(self, grid: Grid, clients: int, wait: Callable[[], None]) -> None:
        self._grid = grid
        self._clients = clients
        self._wait = wait
        self._client_of: dict[int, int | None] = {}
        """What each node said, in the order they said it; None if it was no client of this federation."""
        self._asked_at: dict[int, float] = {}

    def awaited(self, clients: Sequence[int], at_least: int, patience: float, timeout: float) -> dict[int, int]:
        """The nodes of these clients that are connected.

        Waits up to `patience` seconds for all of them, then up to `timeout` for `at_least` so many.
        """
        start, told = time.monotonic(), False
        while True:
            found = self.connected(clients)
            waited = time.monotonic() - start
            enough = waited >= patience and len(found) >= min(at_least, len(clients))
            if len(found) == len(clients) or enough or waited >= patience + timeout:
                return found
            if not told and waited >= SECONDS_OF_SILENCE:
                log.warning("waiting for nodes: %d of %d are connected", len(found), len(clients))
                told = True
            self._wait()

    def connected(self, clients: Sequence[int]) -> dict[int, int]:
        """The nodes of these clients that are connected now."""
        online = set(self._grid.get_node_ids())
        found = self._nodes_of(clients, online)
        if len(found) < len(clients):
            self._ask([node for node in sorted(online - self._client_of.keys()) if self._may_be_asked(node)])
            found = self._nodes_of(clients, online)
        return found

    def _nodes_of(self, clients: Sequence[int], online: set[int]) -> dict[int, int]:
        first: dict[int, int] = {}
        for node, client in self._client_of.items():
            if client is not None and node in online:
                first.setdefault(client, node)
        return {client: first[client] for client in clients if client in first}

    def _may_be_asked(self, node: int) -> bool:
        return time.monotonic() - self._asked_at.get(node, -SECONDS_TO_ANSWER) >= SECONDS_TO_ANSWER

    def _ask(self, nodes: Sequence[int]) -> None:
        questions = {node: Message(RecordDict(), node, "query.identity", ttl=SECONDS_TO_ANSWER) for node in nodes}
        self._asked_at |= dict.fromkeys(nodes, time.monotonic())
        for node, reply in receive(self._grid, questions, SECONDS_TO_ANSWER, self._wait):
            if reply.has_error():
                log.warning("node %d did not say which client it is: %s", node, reply.error.reason)
                continue
            client = dict(reply.content.metric_records.get(METRICS, {})).get("client")
            if not isinstance(client, int) or not 0 <= client < self._clients:
                log.warning("node %d is left out: its partition-id must be 0 to %d", node, self._clients - 1)
                self._client_of[node] = None
                continue
            if client in self._client_of.values():
                log.warning("node %d says it is client %d, as another node did that is used first", node, client)
            self._client_of[node] = client


def receive(
    grid: Grid, messages: Mapping[int, Message], timeout: float, wait: Callable[[], None]
) -> Iterator[tuple[int, Message]]:
    """Sends messages; gives the key of each with its reply, as they come, until all are there or the time is over.

    `wait` is called between two looks for replies.
    """
    identifiers = list(grid.push_messages(list(messages.values())))
    if len(identifiers) != len(messages):
        raise RunError("Flower did not take the messages of this round; its log says why")
    waiting = {identifier: key for identifier, key in zip(identifiers, messages, strict=True) if identifier}
    end = time.monotonic() + timeout
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            if reply.metadata.reply_to_message_id in waiting:
                yield waiting.pop(reply.metadata.reply_to_message_id), reply
        if not waiting or time.monotonic() >= end:
            return
        wait()
