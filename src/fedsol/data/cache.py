"""Large data, read once: a Dataset stored as plain arrays, which every process maps into its memory and none copies."""

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor

from fedsol.data.types import Columns, Dataset, Split, tensors_of
from fedsol.errors import InputError

CACHE_VERSION = 1
DETAILS = "dataset.json"
_COLUMNS: TypeAdapter[Columns | None] = TypeAdapter(Columns | None)
_TUPLES = ("mean", "std", "class_names", "client_names", "target_mean", "target_std")


def cached(folder: Path, make: Callable[[], Dataset]) -> Dataset:
    """Return the dataset stored in a folder, memory-mapped; it is made and stored now if the folder does not exist."""
    if not folder.is_dir():
        _store(make(), folder)
    try:
        return _read(folder)
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise InputError(f"{folder}: the cache is damaged ({error}); delete it") from error


def _store(dataset: Dataset, folder: Path) -> None:
    arrays = _arrays_of(dataset)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent)
    except OSError as error:
        raise InputError(
            f"{folder.parent}: cannot store rows ({error.strerror}); set data.cache to another folder"
        ) from error
    with temporary as name:
        size, free = sum(tensor.nbytes for tensor in arrays.values()), shutil.disk_usage(name).free
        if size > free:
            raise InputError(
                f"{folder.parent}: the rows take {size / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free; set "
                "data.cache to another folder"
            )
        inner = Path(name, folder.name)
        inner.mkdir()
        for key, tensor in arrays.items():
            np.save(inner / f"{key}.npy", tensor.numpy(), allow_pickle=False)
        (inner / DETAILS).write_text(json.dumps(_details_of(dataset)), encoding="utf-8")
        if not folder.is_dir():  # another process may have stored it meanwhile
            inner.replace(folder)


def _arrays_of(dataset: Dataset) -> dict[str, Tensor]:
    """Return every tensor of a dataset by a name such as `train.inputs.numbers`."""
    arrays = {}
    for part, split in (("train", dataset.train), ("test", dataset.test)):
        for name, tensor in tensors_of(split.inputs).items():
            arrays[f"{part}.inputs.{name}"] = tensor
        arrays[f"{part}.labels"] = split.labels
        if split.clients is not None:
            arrays[f"{part}.clients"] = split.clients
    return arrays


def _details_of(dataset: Dataset) -> dict[str, Any]:
    columns = None if dataset.columns is None else asdict(dataset.columns)
    plain = {name: getattr(dataset, name) for name in ("name", "classes", "channels", *_TUPLES)}
    return {**plain, "columns": columns, "inputs": [*tensors_of(dataset.train.inputs)]}


def _read(folder: Path) -> Dataset:
    details = json.loads((folder / DETAILS).read_text(encoding="utf-8"))
    names = details.pop("inputs")
    columns = _COLUMNS.validate_python(details.pop("columns"))
    details |= {name: tuple(details[name]) for name in _TUPLES}
    train, test = (_read_split(folder, part, names) for part in ("train", "test"))
    return Dataset(train=train, test=test, columns=columns, **details)


def _read_split(folder: Path, part: str, names: list[str]) -> Split:
    def mapped(name: str) -> Tensor:
        # Copy on write: torch does not accept read-only memory, and the file itself must not change.
        return torch.from_numpy(np.load(folder / f"{part}.{name}.npy", mmap_mode="c", allow_pickle=False))

    inputs = {name: mapped(f"inputs.{name}") for name in names}
    single = inputs.get("")
    clients = mapped("clients") if (folder / f"{part}.clients.npy").is_file() else None
    return Split(inputs if single is None else single, mapped("labels"), clients)
