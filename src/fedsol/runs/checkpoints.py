"""Checkpoints: everything needed to resume a run. A kill at any instant leaves the previous one intact."""

import contextlib
import json
import logging
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsol.core.files import (
    disk_errors_named,
    flush_folder,
    read_checked,
    read_tensors,
    sha256,
    tensors_to_bytes,
    write_atomically,
)
from fedsol.core.messages import ServerState, Update, pack_update, unpack_update
from fedsol.core.weights import prefixed, without_prefix
from fedsol.errors import RunError
from fedsol.runs.client_states import ClientStates, Key

log = logging.getLogger(__name__)

CHECKPOINTS = 2
"""How many checkpoints stay on disk, in case one is damaged."""


@dataclass(frozen=True)
class Checkpoint:
    """The run after a round."""

    round: int
    server: ServerState
    late: list[Update]
    """Updates that arrive in the next round."""
    clients: dict[Key, str]
    """The states of clients, and the checksums of their files."""
    rows_sha256: str
    """Hash of the rows of metrics up to this round."""


class Checkpoints:
    """A folder of `round-NNNNNN` folders, `clients` with the files that they refer to, and `best`.

    `best` has folders like the others, without late updates and states of clients: the best round as of each of them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client_folder = folder / "clients"
        self.best_folder = folder / "best"

    def save(
        self, round_number: int, server: ServerState, late: Sequence[Update], states: ClientStates, rows_sha256: str
    ) -> None:
        """Write a checkpoint, make it visible by one rename, then remove the oldest."""
        with disk_errors_named(self.folder):
            clients = states.save()
            _write(self.folder, Checkpoint(round_number, server, list(late), clients, rows_sha256))
            self._drop_old(round_number, states)

    def save_best(self, round_number: int, server: ServerState, rows_sha256: str) -> None:
        """Write the checkpoint of the best round so far; earlier ones stay until `drop_bests`."""
        with disk_errors_named(self.best_folder):
            _write(self.best_folder, Checkpoint(round_number, server, [], {}, rows_sha256))

    def drop_bests(self, rounds: Iterable[int | None]) -> None:
        """Remove the checkpoints of all but these best rounds."""
        names = {_name(number) for number in rounds if number is not None}
        for folder in self.best_folder.glob("round-*"):
            if folder.name not in names:
                shutil.rmtree(folder, ignore_errors=True)

    def best(self, round_number: int) -> Checkpoint:
        """Return the checkpoint of the best round; raise `RunError` if it is missing or damaged."""
        return self._read(self.best_folder / _name(round_number))

    def rounds(self) -> list[int]:
        """Return the rounds that have a checkpoint, valid or not, newest first."""
        return [int(folder.name.removeprefix("round-")) for folder in self._by_age()]

    def newest(self, rounds: int | None = None) -> Checkpoint | None:
        """Return the newest valid checkpoint of at most this many rounds; skip invalid ones with a warning."""
        for folder in self._by_age():
            try:
                checkpoint = self._read(folder)
                if rounds is not None and checkpoint.round > rounds:
                    raise RunError(f"{folder}: newer than the last row of metrics.jsonl")
                return checkpoint
            except RunError as error:
                log.warning("%s; this checkpoint is skipped", error)
        return None

    def oldest_round(self) -> int:
        """Return the earliest round that the run can resume from; 0 without a checkpoint."""
        return min(self.rounds(), default=0)

    def exist(self) -> bool:
        """Return whether there is any checkpoint, valid or not."""
        return bool(self._by_age())

    def _by_age(self) -> list[Path]:
        return sorted(self.folder.glob("round-*"), reverse=True)

    def _read(self, folder: Path) -> Checkpoint:
        description = _read_description(folder / "checkpoint.json")
        tensors = read_tensors(folder / "server.safetensors", description["server_sha256"])
        clients = _client_states(description)
        for key, checksum in clients.items():
            read_checked(self.client_folder / key.file, checksum)
        server = ServerState(
            weights=without_prefix("weights", tensors),
            parameters=tuple(description["parameters"]),
            clients=description["clients"],
            state=without_prefix("state", tensors),
            optimizer=without_prefix("optimizer", tensors),
            recent_changes=tuple(tuple(sizes) for sizes in description.get("recent_changes", ())),
            clip_norm=description.get("clip_norm"),
        )
        late = [
            unpack_update(entry["values"], read_tensors(folder / f"late-{number}.safetensors", entry["sha256"]))
            for number, entry in enumerate(description["late"])
        ]
        return Checkpoint(description["round"], server, late, clients, description["rows_sha256"])

    def _drop_old(self, round_number: int, states: ClientStates) -> None:
        """Remove all but the newest checkpoints up to this round; one of a later round is damaged and was skipped."""
        folders = [folder for folder in self._by_age() if folder.name <= _name(round_number)][:CHECKPOINTS]
        for folder in set(self._by_age()) - set(folders):
            shutil.rmtree(folder, ignore_errors=True)
        referred: set[Key] = set()
        for folder in folders:
            with contextlib.suppress(RunError):
                referred.update(_client_states(_read_description(folder / "checkpoint.json")))
        states.remove_files_except(referred)


def _name(round_number: int) -> str:
    return f"round-{round_number:06d}"


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint into a folder and make it visible by one rename."""
    target, server = folder / _name(checkpoint.round), checkpoint.server
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    model = {**prefixed("weights", server.weights), **prefixed("state", server.state)}
    content = tensors_to_bytes({**model, **prefixed("optimizer", server.optimizer)})
    write_atomically(temporary / "server.safetensors", content)
    late_entries = []
    for number, update in enumerate(checkpoint.late):
        values, tensors = pack_update(update)
        late_content = tensors_to_bytes(tensors)
        write_atomically(temporary / f"late-{number}.safetensors", late_content)
        late_entries.append({"values": values, "sha256": sha256(late_content)})
    description = {
        "round": checkpoint.round,
        "clients": server.clients,
        "parameters": server.parameters,
        "server_sha256": sha256(content),
        "rows_sha256": checkpoint.rows_sha256,
        "late": late_entries,
        "recent_changes": server.recent_changes,
        **({} if server.clip_norm is None else {"clip_norm": server.clip_norm}),
        "client_states": {
            str(key.client): {"round": key.round, "sha256": saved} for key, saved in checkpoint.clients.items()
        },
    }
    text = json.dumps(description, indent=1)
    write_atomically(temporary / "checkpoint.json", f"{text}\n{sha256(text.encode())}\n")
    if target.exists():
        shutil.rmtree(target)
    temporary.rename(target)
    flush_folder(folder)


def _client_states(description: Mapping[str, Any]) -> dict[Key, str]:
    return {Key(int(client), saved["round"]): saved["sha256"] for client, saved in description["client_states"].items()}


def _read_description(path: Path) -> dict[str, Any]:
    """Return a JSON object that is followed by a line with its checksum."""
    try:
        text, _, checksum = path.read_text(encoding="utf-8").rstrip("\n").rpartition("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from error
    if sha256(text.encode()) != checksum:
        raise RunError(f"{path}: damaged (its checksum differs)")
    description = dict(json.loads(text))
    expected = {"round", "clients", "parameters", "server_sha256", "rows_sha256", "late", "client_states"}
    if missing := expected - description.keys():
        raise RunError(f"{path}: missing {', '.join(sorted(missing))}")
    return description
