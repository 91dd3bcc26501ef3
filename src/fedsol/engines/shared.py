"""Messages between processes: plain values as JSON through a pipe, tensors in memory that both processes see.

The memory has no name in the file system. The system releases it with the last process that has it, however that ends.
"""

from __future__ import annotations

import itertools
import json
import math
import mmap
import os
import sys
import tempfile
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsol.core.messages import State

Message = dict[str, Any]
Layout = list[tuple[str, str, list[int], int]]
"""Name, type, shape and first byte of each tensor."""

ALIGNMENT = 64
"""Every tensor begins at a multiple of it, as in memory of its own."""

_numbers = itertools.count()


class Segment:
    """A piece of shared memory that this process has made."""

    def __init__(self, size: int) -> None:
        self.number = next(_numbers)
        self.size = max(1, -(-size // mmap.PAGESIZE)) * mmap.PAGESIZE
        self.tag = f"fedsol-{os.getpid()}-{self.number}"
        if sys.platform == "win32":
            self.memory = mmap.mmap(-1, self.size, tagname=self.tag)
        else:
            self.descriptor = _unnamed_file()
            os.ftruncate(self.descriptor, self.size)
            self.memory = mmap.mmap(self.descriptor, self.size)
            weakref.finalize(self, os.close, self.descriptor)

    def send(self, connection: Connection) -> None:
        """Give another process this memory."""
        if sys.platform != "win32":
            send_handle(connection, self.descriptor, None)


def receive_segment(connection: Connection, size: int, tag: str) -> mmap.mmap:
    """Return the memory that another process sends."""
    if sys.platform == "win32":
        return mmap.mmap(-1, size, tagname=tag)
    descriptor = recv_handle(connection)
    try:
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


def _unnamed_file() -> int:
    """Return the descriptor of an empty file without a name, in memory where the system has such files."""
    if sys.platform == "linux":
        return os.memfd_create("fedsol")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@dataclass(frozen=True)
class Place:
    """A part of a segment, for the tensors of one message at a time."""

    number: int
    segment: Segment
    start: int
    size: int


@dataclass(frozen=True)
class Placed:
    """Tensors in shared memory, and what the receiver needs to find them there."""

    place: Place
    layout: Layout


class Outbox:
    """Shared memory that one side writes into. A place is used again when it is released."""

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}
        self._free: set[int] = set()

    def put(self, tensors: State) -> Placed:
        """Copy tensors into a free place; make more places if none is large enough."""
        size = sum(_aligned(tensor.nbytes) for tensor in tensors.values())
        fitting = [place for number in self._free if (place := self._places[number]).size >= size]
        place = min(fitting, key=lambda place: (place.size, place.number)) if fitting else self._more(size)
        self._free.discard(place.number)
        layout, start = [], place.start
        for name, tensor in tensors.items():
            layout.append((name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), start))
            if tensor.numel():
                _view(place.segment.memory, tensor.dtype, tensor.shape, start).copy_(tensor.detach())
            start += _aligned(tensor.nbytes)
        return Placed(place, layout)

    def release(self, numbers: Iterable[int]) -> None:
        """Take back places that nobody reads any more."""
        self._free.update(self._places.keys() & set(numbers))

    def _more(self, size: int) -> Place:
        """Double the number of places, so that a round of many clients takes few segments; return the first new one."""
        count, size = max(1, len(self._places)), _aligned(size)
        segment = Segment(size * count)
        made = [Place(next(_numbers), segment, number * size, size) for number in range(count)]
        self._places |= {place.number: place for place in made}
        self._free.update(place.number for place in made)
        return made[0]


class Channel:
    """One end of a pipe between processes. A message is a dict of plain values, and tensors.

    The tensors that are received are those that were sent, not copies. Each end says with its next message of which
    places no tensor is left, and the other end may write there again.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._outbox = Outbox()
        self._sent: set[int] = set()
        self._received: dict[int, mmap.mmap] = {}
        self._read: deque[int] = deque()

    def put(self, tensors: State) -> Placed | None:
        """Write tensors for the next message into shared memory."""
        return self._outbox.put(tensors) if tensors else None

    def send(self, message: Message, placed: Placed | None = None) -> None:
        """Send a message; raise OSError if the other end is gone."""
        read = [self._read.popleft() for _ in range(len(self._read))]
        content: Message = {"message": message, "read": read}
        if placed is None:
            self.connection.send_bytes(json.dumps(content).encode())
            return
        segment = placed.place.segment
        content |= {"segment": segment.number, "place": placed.place.number, "layout": placed.layout}
        if segment.number in self._sent:
            self.connection.send_bytes(json.dumps(content).encode())
            return
        self.connection.send_bytes(json.dumps({**content, "size": segment.size, "tag": segment.tag}).encode())
        segment.send(self.connection)
        self._sent.add(segment.number)

    def receive(self) -> tuple[Message, State]:
        """Wait for a message; raise EOFError or OSError if the other end is gone."""
        content = json.loads(self.connection.recv_bytes())
        self._outbox.release(content["read"])
        if "segment" not in content:
            return content["message"], {}
        if "size" in content:
            memory = receive_segment(self.connection, content["size"], content["tag"])
            self._received[content["segment"]] = memory
        seen = np.frombuffer(self._received[content["segment"]], dtype=np.uint8)  # lives as long as the tensors
        weakref.finalize(seen, self._read.append, content["place"]).atexit = False
        found = {name: _view(seen, getattr(torch, kind), shape, at) for name, kind, shape, at in content["layout"]}
        return content["message"], found


def _view(memory: Any, dtype: torch.dtype, shape: Iterable[int], start: int) -> Tensor:
    sizes = tuple(shape)
    count = math.prod(sizes)
    if not count:
        return torch.empty(sizes, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=start).view(sizes)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
