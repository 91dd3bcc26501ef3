"""The memory of this machine and process, and the peak memory of a piece of torch code, counted tensor by tensor."""

import ctypes
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedsol.errors import InputError

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
"""Parameters of mallopt(3)."""


def machine_memory() -> int | None:
    """Return the bytes of memory of this machine; None if the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


def require_memory(size: int, purpose: str) -> None:
    """Raise `InputError` if this machine does not have as many bytes of memory as the purpose takes."""
    total = machine_memory()
    if total is not None and size > total:
        raise InputError(f"{purpose} takes {size / 1e9:,.1f} GB of memory, and this machine has {total / 1e9:,.1f} GB")


def keep_freed_memory() -> None:
    """Let this process keep what its tensors free for the next ones, where memory is glibc's.

    By default it returns large tensors to the system, which zeroes every page before it gives it out again.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)


class PeakMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A block that counts the bytes of all tensors made inside it, for as long as they live.

    The workspace of a kernel is not counted.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak: int = 0
        self._now: int = 0
        self._known: dict[int, Any] = {}

    def __torch_dispatch__(
        self,
        function: Any,
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        for given in tree_leaves((arguments, options)):
            if isinstance(given, torch.Tensor):
                self._note(given.untyped_storage(), 0)  # existed before: not counted, now or later
        result = function(*arguments, **(options or {}))
        for made in tree_leaves(result):
            if isinstance(made, torch.Tensor):
                self._note(made.untyped_storage(), made.untyped_storage().nbytes())
        return result

    def _note(self, storage: torch.UntypedStorage, size: int) -> None:
        key = storage._cdata
        if key not in self._known:
            self._known[key] = weakref.ref(storage, partial(self._forget, key, size))
            self._now += size
            self.peak = max(self.peak, self._now)

    def _forget(self, key: int, size: int, _: object) -> None:
        self._now -= size
        self._known.pop(key, None)


def peak_bytes(action: Callable[[], object]) -> int:
    """Return the peak bytes of tensors during the action, beyond those that existed before."""
    with PeakMemory() as memory:
        action()
    return int(memory.peak)
