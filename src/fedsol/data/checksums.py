"""Checksums of files, and the memory of those already verified.

Hashing gigabytes at every start would be slow, so `.verified.json` in a dataset's folder keeps the checksum
each file had together with its size and modification time; a file that changed in either is hashed again.
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

MARKER = ".verified.json"
BLOCK = 1 << 20


def checksum_of(path: Path, algorithm: str) -> str:
    """The file's checksum, as `algorithm:hex`."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return f"{algorithm}:{digest.hexdigest()}"


def verified_checksum(path: Path, folder: Path, algorithm: str, trust_marker: bool = True) -> str:
    """The file's checksum: remembered in `folder`'s marker if the file is unchanged, else computed."""
    state = _state(path)
    name = path.relative_to(folder).as_posix()
    if trust_marker:
        remembered = _read_marker(folder).get(name)
        if isinstance(remembered, dict) and {key: remembered.get(key) for key in state} == state:
            checksum = remembered.get("checksum")
            if isinstance(checksum, str) and checksum.startswith(f"{algorithm}:"):
                return checksum
    checksum = checksum_of(path, algorithm)
    _remember(folder, name, {**state, "checksum": checksum})
    return checksum


def _state(path: Path) -> dict[str, int]:
    status = path.stat()
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _read_marker(folder: Path) -> dict[str, Any]:
    """What is remembered; a marker that cannot be read only means that files are hashed again."""
    try:
        content = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _remember(folder: Path, name: str, entry: dict[str, Any]) -> None:
    content = json.dumps({**_read_marker(folder), name: entry}, indent=1, sort_keys=True)
    try:
        handle, temporary = tempfile.mkstemp(prefix=MARKER, dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        Path(temporary).replace(folder / MARKER)
    except OSError:
        # Data on a read-only disk is verified all the same, only anew at each start.
        return
