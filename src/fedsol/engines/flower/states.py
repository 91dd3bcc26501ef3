"""NodeStates: a client's own state on its own disk, where it survives restarts and never leaves the node."""

import contextlib
from pathlib import Path

from fedsol.core.files import disk_errors_named, read_tensors, sha256, tensors_to_bytes, write_atomically
from fedsol.core.messages import State
from fedsol.errors import RunError


class NodeStates:
    """The states of one client in one run, one file for each round that it took part in.

    Beside each file stands its checksum: a file that is damaged counts as lost.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, round_number: int) -> State | None:
        """The state after a round; None if it is lost."""
        path = self._path(round_number)
        try:
            return read_tensors(path, path.with_suffix(".sha256").read_text(encoding="ascii").strip())
        except (OSError, UnicodeDecodeError, RunError):
            return None

    def save(self, round_number: int, state: State) -> None:
        """Keeps the state after a round."""
        with disk_errors_named(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            content, path = tensors_to_bytes(state), self._path(round_number)
            write_atomically(path, content)
            write_atomically(path.with_suffix(".sha256"), sha256(content) + "\n")

    def forget_before(self, round_number: int) -> None:
        """Deletes what a server will not ask for again that goes back to this round at most."""
        older = sorted(path for path in self._folder.glob("round-*.safetensors") if path <= self._path(round_number))
        for path in older[:-1]:
            for name in (path, path.with_suffix(".sha256")):
                with contextlib.suppress(OSError):  # a file too many does no harm
                    name.unlink()

    def _path(self, round_number: int) -> Path:
        return self._folder / f"round-{round_number:06d}.safetensors"
