"""ClientStates: what clients carry from one of their rounds to the next.

Memory does not grow with the number of clients: states beyond a budget are in files and are read when their client is
sampled again. A file is written once and never changed, so a checkpoint is a list of names.
"""

import contextlib
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from fedsol.core.files import disk_errors_named, read_tensors, sha256, tensors_to_bytes, write_atomically
from fedsol.core.messages import State
from fedsol.core.weights import size_in_bytes

MEMORY_BUDGET = 256 * 2**20
"""Bytes of client states in memory; the rest is on disk."""


class Key(NamedTuple):
    """The state that a client had after a round."""

    client: int
    round: int

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"client-{self.client:06d}-round-{self.round:06d}.safetensors"


class ClientStates:
    """States by client. A client without one gets the algorithm's initial state, which is not stored."""

    def __init__(self, initial: Callable[[], State], folder: Path | None = None, budget: int = MEMORY_BUDGET) -> None:
        self._initial = initial
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="fedsol-clients-")
        self._folder = folder or Path(self._temporary.name if self._temporary else "")
        self._budget = budget
        self._in_memory: OrderedDict[Key, State] = OrderedDict()
        self._bytes = 0
        self._on_disk: dict[Key, str] = {}
        self._current: dict[int, Key] = {}
        self._in_checkpoint: set[Key] = set()

    def get(self, client: int) -> State:
        """Return the client's state, or the initial one."""
        return self._load(self._current[client]) if client in self._current else self._initial()

    def newest(self, round_number: int | None, client: int) -> State:
        """Return the state that a client has staged in a round (None: in no round), or else its current one."""
        key = Key(client, round_number or 0)
        return self._load(key) if key in self._in_memory or key in self._on_disk else self.get(client)

    def all(self) -> dict[int, State]:
        """Return the state of every client that has one."""
        return {client: self.get(client) for client in sorted(self._current)}

    def _load(self, key: Key) -> State:
        if key not in self._in_memory:
            self._remember(key, read_tensors(self._folder / key.file, self._on_disk[key]))
        self._in_memory.move_to_end(key)
        return self._in_memory[key]

    def stage(self, client: int, round_number: int, state: State) -> None:
        """Store the state of a client's update; it takes effect at `commit`. Empty states are not stored."""
        if state:
            key = Key(client, round_number)
            self._on_disk.pop(key, None)
            self._remember(key, state)

    def unstage(self, client: int, round_number: int) -> None:
        """Drop a staged state, as if it had never arrived."""
        key = Key(client, round_number)
        if key in self._in_memory:
            self._forget(key)
        if self._on_disk.pop(key, None) is not None:
            with contextlib.suppress(OSError):  # a leftover file is harmless
                (self._folder / key.file).unlink()

    def commit(self, round_number: int) -> None:
        """End a round: its staged states become the current ones, and earlier ones are dropped."""
        for key in {*self._in_memory, *self._on_disk}:
            if key.round == round_number:
                self._current[key.client] = key
        for key in [key for key in self._in_memory if not self._is_current(key)]:
            self._forget(key)
        for key in [key for key in self._on_disk if not self._is_current(key) and key not in self._in_checkpoint]:
            del self._on_disk[key]
            with contextlib.suppress(OSError):  # a leftover file is harmless
                (self._folder / key.file).unlink()

    def save(self) -> dict[Key, str]:
        """Write what is not on disk yet; return every client's current state, with the checksum of its file."""
        current = sorted(self._current.values())
        for key in current:
            self._write(key)
        self._in_checkpoint.update(current)
        return {key: self._on_disk[key] for key in current}

    def restore(self, saved: Mapping[Key, str]) -> None:
        """Return to the states of a checkpoint."""
        self._in_memory.clear()
        self._bytes = 0
        self._on_disk = dict(saved)
        self._current = {key.client: key for key in saved}
        self._in_checkpoint = set(saved)

    def remove_files_except(self, in_checkpoint: Iterable[Key]) -> None:
        """Delete the files of states that are neither current nor in a checkpoint."""
        self._in_checkpoint = set(in_checkpoint)
        referred = self._in_checkpoint.union(self._current.values())
        self._on_disk = {key: checksum for key, checksum in self._on_disk.items() if key in referred}
        wanted = {key.file for key in referred}
        for path in self._folder.glob("*.safetensors"):
            if path.name not in wanted:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the temporary folder, if there is one."""
        if self._temporary:
            self._temporary.cleanup()

    def _is_current(self, key: Key) -> bool:
        return self._current.get(key.client) == key

    def _remember(self, key: Key, state: State) -> None:
        """Put a state in memory, and move the least recently used ones to the disk until the rest fits the budget."""
        self._bytes += size_in_bytes(state) - size_in_bytes(self._in_memory.get(key, {}))
        self._in_memory[key] = state
        while self._bytes > self._budget and len(self._in_memory) > 1:
            oldest = next(iter(self._in_memory))
            self._write(oldest)
            self._forget(oldest)

    def _forget(self, key: Key) -> None:
        self._bytes -= size_in_bytes(self._in_memory.pop(key))

    def _write(self, key: Key) -> None:
        if key in self._on_disk:
            return
        content = tensors_to_bytes(self._in_memory[key])
        with disk_errors_named(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._folder / key.file, content)
        self._on_disk[key] = sha256(content)
