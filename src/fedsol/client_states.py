"""ClientStates: what clients carry from one of their rounds to the next.

Memory does not grow with the number of clients: states beyond a budget live in files and are read back when their
client is sampled again. Files are written once and never changed, so a checkpoint is a list of their names.
"""

import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedsol.files import read_tensors, sha256, tensors_to_bytes, write_atomically
from fedsol.messages import State
from fedsol.weights import size_in_bytes

MEMORY_BUDGET = 256 * 2**20
"""Bytes of client states kept in memory; the rest is on disk."""


@dataclass(frozen=True)
class SavedState:
    """Where a client's state is on disk."""

    file: str
    sha256: str


class ClientStates:
    """States by client. A client that never had one gets the algorithm's initial state, which is not stored."""

    def __init__(self, initial: Callable[[], State], folder: Path | None = None, budget: int = MEMORY_BUDGET) -> None:
        self._initial = initial
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="fedsol-clients-")
        self._folder = folder or Path(self._temporary.name if self._temporary else "")
        self._budget = budget
        self._in_memory: OrderedDict[int, State] = OrderedDict()
        self._bytes = 0
        self._unsaved: dict[int, int] = {}
        self._saved: dict[int, SavedState] = {}

    def get(self, client: int) -> State:
        """The client's state; the initial one if it never trained."""
        if client in self._in_memory:
            self._in_memory.move_to_end(client)
            return self._in_memory[client]
        if client not in self._saved:
            return self._initial()
        entry = self._saved[client]
        state = read_tensors(self._folder / entry.file, entry.sha256)
        self._remember(client, state)
        return state

    def put(self, client: int, round_number: int, state: State) -> None:
        """Takes the state that came with a client's update. Empty states need no place."""
        if not state:
            return
        self._remember(client, state)
        self._unsaved[client] = round_number
        self._shrink()

    def save(self) -> dict[int, SavedState]:
        """Writes what is not on disk yet; returns where every client's state is."""
        for client in sorted(self._unsaved):
            self._write(client)
        return dict(self._saved)

    def restore(self, saved: Mapping[int, SavedState]) -> None:
        """Goes back to the states of a checkpoint."""
        self._in_memory.clear()
        self._unsaved.clear()
        self._bytes = 0
        self._saved = dict(saved)

    def remove_files_except(self, kept: Iterable[str]) -> None:
        """Deletes state files that neither a kept checkpoint nor the present refers to."""
        wanted = {*kept, *(entry.file for entry in self._saved.values())}
        for path in self._folder.glob("*.safetensors"):
            if path.name not in wanted:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Removes the temporary folder, if there is one."""
        if self._temporary:
            self._temporary.cleanup()

    def _remember(self, client: int, state: State) -> None:
        self._bytes += size_in_bytes(state) - size_in_bytes(self._in_memory.get(client, {}))
        self._in_memory[client] = state
        self._in_memory.move_to_end(client)

    def _shrink(self) -> None:
        """Drops the states used longest ago until the rest fits the budget."""
        while self._bytes > self._budget and len(self._in_memory) > 1:
            client = next(iter(self._in_memory))
            if client in self._unsaved:
                self._write(client)
            self._bytes -= size_in_bytes(self._in_memory.pop(client))

    def _write(self, client: int) -> None:
        content = tensors_to_bytes(self._in_memory[client])
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"client-{client:06d}-round-{self._unsaved[client]:06d}.safetensors"
        write_atomically(self._folder / name, content)
        self._saved[client] = SavedState(name, sha256(content))
        del self._unsaved[client]
