"""The data file beside every figure: JSON that any program reads."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsol.core.files import write_atomically
from fedsol.errors import InputError


def write_data(path: Path, content: Any) -> Path:
    """Writes dataclasses, mappings, sequences and plain values; a number that is not finite becomes null."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(as_plain(content), indent=1) + "\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def as_plain(value: Any) -> Any:
    """What JSON can hold: dataclasses and mappings as objects; a number that is not finite as null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
