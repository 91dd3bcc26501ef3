"""Map-style datasets, torch's or others: items read one by one, once, into the tensors that fedsol trains on.

An item is a pair of inputs and target, or a dict of named inputs with the target among them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsol.core.memory import require_memory
from fedsol.core.user_code import describe_user_error
from fedsol.data.arrays import Samples, Source, build_dataset, divided, to_tensor
from fedsol.data.checks import IGNORED
from fedsol.data.targets import check_targets
from fedsol.data.types import MASK, Array, Dataset, Inputs
from fedsol.errors import InputError

TARGETS = ("labels", "label", "target", "targets")
"""The names of the target in an item that is a dict."""
TOKENS = "input_ids"


def is_map_style(data: object) -> bool:
    """Return whether an object is a dataset with a length and numbered items."""
    return isinstance(data, torch.utils.data.Dataset) and hasattr(data, "__getitem__") and hasattr(data, "__len__")


def items_dataset(train: Any, test: Any | None, source: Source) -> Dataset:
    """Return the Dataset of two map-style datasets, or of one that is divided by `test_fraction`."""
    parts = [train] if test is None else [train, test]
    both, count = read_items(parts, source), len(train)  # together, so that all tokens are padded alike
    first, second = both.select(slice(count)), None if test is None else both.select(slice(count, None))
    samples = divided(first, second, source)
    return build_dataset(source.name, samples, source, class_names_of(train, first.targets, source))


def class_names_of(items: Any, numbers: Array, source: Source) -> tuple[str, ...] | None:
    """Return the names of classes that are numbered already: the dataset's `classes`, or the numbers themselves."""
    if source.kind != "classification" or numbers.dtype.kind not in "iub":
        return None
    lowest, largest = int(numbers.min()), int(numbers.max())
    if lowest != 0:
        hint = f"; subtract {lowest}" if lowest > 0 else ""
        raise InputError(f"{source.name}: labels must be 0, 1, 2 … (got {lowest} to {largest}){hint}")
    names = getattr(items, "classes", None)
    if isinstance(names, list | tuple) and len(names) > largest and all(isinstance(name, str) for name in names):
        return tuple(names)
    return tuple(map(str, range(largest + 1)))


def read_items(parts: Sequence[Any], source: Source) -> Samples:
    """Read every item of the datasets once."""
    count = sum(map(len, parts))
    if min(map(len, parts)) == 0:
        raise InputError(f"{source.name}: has no items")
    inputs: dict[str, _Column] = {}
    targets: list[Array] = []
    for index, (named, target) in enumerate(pair for part in parts for pair in _pairs(part, source)):
        if not inputs:
            inputs = {name: _Column(count) for name in named}
        if named.keys() != inputs.keys():
            raise InputError(f"{source.name}: item {index} must have {[*inputs]}, as the first (got {[*named]})")
        for name, value in named.items():
            inputs[name].add(index, value, f"{source.name}: item {index}{f'[{name!r}]' if name else ''}")
        targets.append(target)
    tensors = _tensors(inputs, source)
    values = check_targets(_joined_targets(targets, source), source.kind, f"{source.name}: targets")
    return Samples(tensors, values)


def _pairs(items: Any, source: Source) -> Iterator[tuple[dict[str, Array], Array]]:
    """Yield the named inputs (one without a name) and the target of each item."""
    for index in range(len(items)):
        where = f"{source.name}: item {index}"
        try:
            item = items[index]
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        except (Exception, SystemExit) as error:  # a user's dataset may raise anything
            raise InputError(f"{where} raised {describe_user_error(error)}") from error
        if isinstance(item, Mapping):
            yield _named_pair(item, source.kind, where)
        elif isinstance(item, tuple | list) and len(item) == 2:
            inputs = item[0] if isinstance(item[0], Mapping) else {"": item[0]}
            yield (
                {str(name): _array(value, where) for name, value in inputs.items()},
                _array(item[1], f"{where}: target"),
            )
        else:
            raise InputError(f"{where} must be a pair of inputs and target, or a dict (got a {type(item).__name__})")


def _named_pair(item: Mapping[str, Any], kind: str, where: str) -> tuple[dict[str, Array], Array]:
    target = next((name for name in TARGETS if name in item), None)
    if target is None and not (kind == "next-token" and TOKENS in item):
        raise InputError(f"{where} must have a target, named {' or '.join(TARGETS)} (got {', '.join(map(str, item))})")
    inputs = {str(name): _array(value, f"{where}[{name!r}]") for name, value in item.items() if name != target}
    value = _array(item[target or TOKENS], f"{where}[{(target or TOKENS)!r}]")
    if kind == "next-token" and value.ndim != 1:
        raise InputError(f"{where}: the target must be a sequence of token ids (got shape {value.shape})")
    if kind == "next-token":  # as in transformers, the target of a dict is not shifted: it is the tokens themselves
        value = np.append(value[1:], IGNORED)
    return inputs, value


def _array(value: Any, where: str) -> Array:
    """Return a tensor, an array, a number, text or an image of Pillow as an array."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    try:
        array = np.asarray(value)
    except Exception as error:  # a user's object may raise anything
        raise InputError(f"{where}: cannot be converted to an array: {describe_user_error(error)}") from error
    if array.dtype == object:
        raise InputError(f"{where}: must be a tensor, an array or an image (got a {type(value).__name__})")
    return array


@dataclass
class _Column:
    """One named input of all items: an array that is filled row by row, or a list of sequences of tokens."""

    count: int
    rows: Array | None = None
    tokens: list[Array] = field(default_factory=list)

    def add(self, index: int, value: Array, where: str) -> None:
        """Store the value of one item."""
        if value.dtype.kind not in "iubf":
            raise InputError(f"{where}: must be numbers (got {value.dtype}); tokenize text first")
        value = value[None] if value.ndim == 0 else value
        if value.ndim == 1 and value.dtype.kind in "iu" and value.dtype != np.uint8:
            self.tokens.append(value)
            return
        if self.rows is None:
            kind = np.uint8 if value.dtype == np.uint8 else np.float32
            require_memory(self.count * value.size * np.dtype(kind).itemsize, f"{where}: {self.count:,} such inputs")
            self.rows = np.empty((self.count, *value.shape), dtype=kind)
        if value.shape != self.rows.shape[1:] or (value.dtype == np.uint8) != (self.rows.dtype == np.uint8):
            raise InputError(
                f"{where}: must be as in the first item, {self.rows.dtype} of shape {self.rows.shape[1:]} "
                f"(got {value.dtype} of shape {value.shape})"
            )
        self.rows[index] = value


def _tensors(columns: Mapping[str, _Column], source: Source) -> Inputs:
    tensors: dict[str, Tensor] = {}
    for name, column in columns.items():
        where = f"{source.name}: inputs{f'[{name!r}]' if name else ''}"
        if column.tokens and (column.rows is not None or len(column.tokens) != column.count):
            raise InputError(f"{where}: must be integers in all items or in none")
        if column.rows is not None:
            tensors[name] = to_tensor(column.rows, where)
            continue
        lengths = {len(row) for row in column.tokens}
        tensors[name] = to_tensor(padded(column.tokens, 0), where)
        if len(lengths) > 1 and name in ("", TOKENS) and MASK not in columns:
            tensors[MASK] = to_tensor(padded([np.ones(len(row), dtype=np.int64) for row in column.tokens], 0), where)
    if "" in tensors and MASK in tensors:
        tensors[TOKENS] = tensors.pop("")
    single = tensors.get("")
    return tensors if single is None else single


def padded(rows: Sequence[Array], value: int) -> Array:
    """Return rows of different lengths as one array, with a value after the end of each."""
    filled = np.full((len(rows), max(1, *map(len, rows))), value, dtype=np.int64)
    for row, tokens in zip(filled, rows, strict=True):
        row[: len(tokens)] = tokens
    return filled


def _joined_targets(targets: Sequence[Array], source: Source) -> Array:
    if source.kind == "next-token":
        return padded(targets, IGNORED)
    first = targets[0].shape
    for index, target in enumerate(targets):
        if target.shape != first:
            shape = target.shape
            raise InputError(f"{source.name}: item {index}: the target must have the shape {first} (got {shape})")
    return np.stack(targets)
