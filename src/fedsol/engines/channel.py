"""A pipe between two processes of this machine that carries plain values and tensors, as JSON and safetensors."""

import json
from multiprocessing.connection import Connection
from typing import Any

from fedsol.core.files import tensors_from_bytes, tensors_to_bytes
from fedsol.core.messages import State

Message = dict[str, Any]


class Channel:
    """One end of the pipe. A message is a dict of plain values and the named tensors that go with it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def send(self, message: Message, tensors: State | None = None) -> None:
        """Sends a message; raises OSError if the other end is gone."""
        self.send_bytes(message, tensors_to_bytes(tensors or {}))

    def send_bytes(self, message: Message, content: bytes) -> None:
        """The same with tensors that are serialised already."""
        self.connection.send_bytes(json.dumps(message).encode())
        self.connection.send_bytes(content)

    def receive(self) -> tuple[Message, State]:
        """Waits for a message; raises EOFError or OSError if the other end is gone."""
        message = json.loads(self.connection.recv_bytes())
        return message, tensors_from_bytes(self.connection.recv_bytes())

    def close(self) -> None:
        """Closes this end."""
        self.connection.close()
