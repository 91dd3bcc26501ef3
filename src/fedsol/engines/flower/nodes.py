"""Find the node of every client in a Flower federation, and exchange messages."""

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
"""How long to wait for nodes before a warning."""


class Nodes:
    """Nodes by client. Node ids are random, so each node is asked once for its `partition-id`.

    If several nodes are the same client, the first that answered is used while it is connected.
    """

    def __init__(self, grid: Grid, clients: int, wait: Callable[[], None]) -> None:
        self._grid = grid
        self._clients = clients
        self._wait = wait
        self._client_of: dict[int, int | None] = {}
        """The answers of nodes, in their order; None for a node that is not a client of this federation."""
        self._asked_at: dict[int, float] = {}

    def awaited(self, clients: Sequence[int], at_least: int, patience: float, timeout: float) -> dict[int, int]:
        """Return the connected nodes of these clients.

        Wait up to `patience` seconds for all of them, then up to `timeout` more for `at_least` of them.
        """
        start, warned = time.monotonic(), False
        while True:
            found = self.connected(clients)
            waited = time.monotonic() - start
            enough = waited >= patience and len(found) >= min(at_least, len(clients))
            if len(found) == len(clients) or enough or waited >= patience + timeout:
                return found
            if not warned and waited >= SECONDS_OF_SILENCE:
                log.warning("waiting for nodes: %d of %d are connected", len(found), len(clients))
                warned = True
            self._wait()

    def connected(self, clients: Sequence[int]) -> dict[int, int]:
        """Return the nodes of these clients that are connected now."""
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
                log.warning("node %d is ignored: its partition-id must be 0 to %d", node, self._clients - 1)
                self._client_of[node] = None
                continue
            if client in self._client_of.values():
                log.warning("node %d is client %d, like another node; the first one is used", node, client)
            self._client_of[node] = client


def receive(
    grid: Grid, messages: Mapping[int, Message], timeout: float, wait: Callable[[], None]
) -> Iterator[tuple[int, Message]]:
    """Send messages; yield the key of each with its reply, as they arrive, until all have arrived or time is up.

    `wait` is called between two polls.
    """
    identifiers = list(grid.push_messages(list(messages.values())))
    if len(identifiers) != len(messages):
        raise RunError("Flower did not accept the messages of this round; its log says why")
    waiting = {identifier: key for identifier, key in zip(identifiers, messages, strict=True) if identifier}
    end = time.monotonic() + timeout
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            if reply.metadata.reply_to_message_id in waiting:
                yield waiting.pop(reply.metadata.reply_to_message_id), reply
        if not waiting or time.monotonic() >= end:
            return
        wait()
