"""Files: written so that a reader, or a process killed in between, sees the old content or the new, never a part."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from fedsol.core.messages import State
from fedsol.errors import InputError, RunError


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace a file by a temporary one in the same folder, flushed to the disk before the rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    flush_folder(path.parent)


def append_text(path: Path, text: str) -> None:
    """Append to a file and flush it to the disk; lines end alike on every system."""
    with disk_errors_named(path), path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def make_directory(path: Path) -> None:
    """Make a directory that a user named, and those above it; do nothing if it exists."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be used as a directory: {error.strerror or error}") from error


def write_output(path: Path, content: bytes | str) -> Path:
    """Write a file that a user named, and make the directories above it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def flush_folder(folder: Path) -> None:
    """Make renames inside a folder durable; Windows cannot open a folder, and does not need to."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(content: bytes) -> str:
    """Return the checksum of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def tensors_to_bytes(tensors: State, metadata: Mapping[str, str] | None = None) -> bytes:
    """Return named tensors in the safetensors format, which sorts them: their order is in its metadata."""
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    return save_tensors(contiguous, {**(metadata or {}), "order": json.dumps(list(tensors))})


def tensors_from_bytes(content: bytes) -> State:
    """Return the tensors in their original order, each in its own memory (so that torch aligns it)."""
    tensors = load_tensors(content)
    order = json.loads(tensors_metadata(content).get("order", "[]"))
    return {name: tensors[name].clone() for name in (order if len(order) == len(tensors) else tensors)}


def tensors_metadata(content: bytes) -> dict[str, str]:
    """Return the metadata of bytes in the safetensors format."""
    length = int.from_bytes(content[:8], "little")
    return dict(json.loads(content[8 : 8 + length]).get("__metadata__", {}))


def read_checked(path: Path, checksum: str) -> bytes:
    """Return the content of a file, or raise `RunError` unless it exists and has the checksum."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error}") from error
    if sha256(content) != checksum:
        raise RunError(f"{path}: damaged (its checksum differs)")
    return content


def read_tensors(path: Path, checksum: str) -> State:
    """Return the named tensors of a file, or raise `RunError` if its checksum differs."""
    try:
        return tensors_from_bytes(read_checked(path, checksum))
    except SafetensorError as error:
        raise RunError(f"{path}: cannot be read: {error}") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: must be a JSON object")
    return content


def read_lines(path: Path) -> list[bytes]:
    """Return the lines of a file with their ends; an empty list without a file.

    A torn last line is skipped: its process was killed, or is writing it now.
    """
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    return lines if lines and lines[-1].endswith(b"\n") else lines[:-1]


def read_json_lines(path: Path, after: int = 0) -> list[dict[str, Any]]:
    """Return the JSON objects of a file, one per line, without those of the first lines."""
    objects: list[dict[str, Any]] = []
    for number, line in enumerate(read_lines(path)[after:], start=after + 1):
        try:
            content = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}: line {number}: must be JSON ({error})") from error
        if not isinstance(content, dict):
            raise InputError(f"{path}: line {number}: must be a JSON object")
        objects.append(content)
    return objects


@contextlib.contextmanager
def disk_errors_named(path: Path) -> Iterator[None]:
    """Turn a failure of the disk (full, read-only, gone) into a `RunError` that names the path."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{path}: cannot be written: {error.strerror or error}; everything saved before is intact"
        ) from error
