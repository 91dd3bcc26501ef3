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
"""How long a node may take to say which client it is."""


SECONDS_OF_SILENCE = 10.0
"""How long nodes may be awaited before a word is said about it."""


class Nodes:
    """Node ids are random; a client is found by the `partition-id` that its node tells when it is asked, once."""

    def __init__(self, grid: Grid, clients: int, wait: Callable[[], None]) -> None:
        self._grid = grid
        self._clients = clients
        self._wait = wait
        self._node_of: dict[int, int] = {}
        self._asked: set[int] = set()

    def of(self, clients: Sequence[int], at_least: int, patience: float) -> dict[int, int]:
        """The nodes of these clients that are connected.

        Waits until all are there; after `patience` seconds, until `at_least` so many are.
        """
        start, told = time.monotonic(), False
        while True:
            found = self._connected(clients)
            waited = time.monotonic() - start
            if len(found) == len(clients) or (waited >= patience and len(found) >= min(at_least, len(clients))):
                return found
            if not told and waited >= SECONDS_OF_SILENCE:
                log.warning("waiting for nodes: %d of %d are connected", len(found), len(clients))
                told = True
            self._wait()

    def _connected(self, clients: Sequence[int]) -> dict[int, int]:
        online = set(self._grid.get_node_ids())
        self._asked &= online
        self._node_of = {client: node for client, node in self._node_of.items() if node in online}
        if any(client not in self._node_of for client in clients):
            self._ask(sorted(online - self._asked))
        return {client: self._node_of[client] for client in clients if client in self._node_of}

    def _ask(self, nodes: Sequence[int]) -> None:
        """A node that gives no answer is asked again when its client is wanted again."""
        questions = {node: Message(RecordDict(), node, "query.identity", ttl=SECONDS_TO_ANSWER) for node in nodes}
        for node, reply in receive(self._grid, questions, SECONDS_TO_ANSWER, self._wait):
            if reply.has_error():
                log.warning("node %d did not say which client it is: %s", node, reply.error.reason)
                continue
            self._asked.add(node)
            client = dict(reply.content.metric_records.get(METRICS, {})).get("client")
            if not isinstance(client, int) or not 0 <= client < self._clients:
                log.warning("node %d is left out: its partition-id must be 0 to %d", node, self._clients - 1)
            elif client in self._node_of:
                log.warning("node %d is left out: node %d is client %d already", node, self._node_of[client], client)
            else:
                self._node_of[client] = node


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
