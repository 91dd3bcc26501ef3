"""A federation of Flower nodes inside one process: real messages, serialized as on a wire; no network, no Ray."""

from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.supercore.task_identity import TaskIdentity

import fedsol
from fedsol.engines.flower.client import make_client_app, make_simulated_app
from fedsol.engines.flower.grid import GridEngine
from fedsol.federation.federation import build_federation


class FakeGrid:
    """Answers every message at once, by the node that it is for."""

    def __init__(self, clients: int, states: Path | None = None) -> None:
        self.apps: dict[int, ClientApp] = {
            1000 + 7 * client: (make_client_app if states else make_simulated_app)() for client in range(clients)
        }
        self.configs = {
            node: {"partition-id": client, **({"state-dir": str(states)} if states else {})}
            for client, node in enumerate(self.apps)
        }
        self.offline: set[int] = set()
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # what Flower's own processes set
        self.changed: Callable[[int, Message, RecordDict], RecordDict | Error | None] = lambda node, message, content: (
            content
        )
        self.bytes_down = self.bytes_up = 0
        self._replies: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        """Nodes that are connected."""
        return [node for node in self.apps if node not in self.offline]

    def push_messages(self, messages: list[Message]) -> list[str]:
        """Delivers; the replies wait to be pulled."""
        names = []
        for message in messages:
            node = message.metadata.dst_node_id
            name = f"message-{len(self._replies)}-{node}-{message.metadata.message_type}"
            names.append(name)
            content, size = over_the_wire(message.content)
            training = message.metadata.message_type == "train"
            self.bytes_down += size * (message.metadata.message_type != "query.identity")
            message.metadata.__dict__["_message_id"] = name
            received = Message(content, node, message.metadata.message_type)
            received.metadata.__dict__["_message_id"] = name
            context = Context(1, node, self.configs[node], RecordDict(), {})
            reply = self.apps[node](received, context)
            if not reply.has_error():
                answer = self.changed(node, received, reply.content) if training else reply.content
                if answer is None:
                    continue
                if isinstance(answer, Error):
                    reply = Message(answer, reply_to=received)
                else:
                    content, size = over_the_wire(answer)
                    self.bytes_up += size * training
                    reply = Message(content, reply_to=received)
            self._replies[name] = reply
        return names

    def pull_messages(self, names: list[str]) -> list[Message]:
        """Replies that are there."""
        return [self._replies.pop(name) for name in list(names) if name in self._replies]


def over_the_wire(content: RecordDict) -> tuple[RecordDict, int]:
    """A message's content as it is after it was bytes, and how many."""
    proto = recorddict_to_proto(content)
    data = proto.SerializeToString()
    return recorddict_from_proto(type(proto).FromString(data)), len(data)


def simulated(settings, change=None):
    """A run on a simulated federation of nodes."""
    grid = FakeGrid(clients_of(settings))
    if change:
        change(grid)
    return fedsol.train(settings, engine=lambda federation: GridEngine(federation, grid, None)), grid


def deployed(settings, folder, grid=None, resume=False, callbacks=()):
    """A run on nodes that keep their own states."""
    grid = grid or FakeGrid(clients_of(settings), folder / "states")
    out = folder / "run"
    run = fedsol.train(settings, callbacks, out, resume, engine=lambda federation: GridEngine(federation, grid, out))
    return run, grid


def clients_of(settings):
    return build_federation(settings).clients
