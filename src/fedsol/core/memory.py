"""Peak memory of a piece of torch code, counted tensor by tensor: exact, on every device, and repeatable."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


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
