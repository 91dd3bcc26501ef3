"""The only source of randomness: generators keyed by what they are for.

A key says everything that a draw may depend on (the experiment's seed, the purpose, the round, the client), so the
same key gives the same draw in every process, order and resumed run.
"""

import contextlib
import hashlib
from collections.abc import Iterator

import numpy as np
import torch


def key_for(seed: int, *key: int | str) -> int:
    """Return a 63-bit number that depends on the seed and every part of the key, the same on every platform."""
    text = "/".join([str(seed), *(f"{type(part).__name__}:{part}" for part in key)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator_for(seed: int, *key: int | str) -> torch.Generator:
    """Return a torch generator on the CPU, for example `generator_for(seed, "client", round, client)`."""
    return torch.Generator().manual_seed(key_for(seed, *key))


def numpy_generator_for(seed: int, *key: int | str) -> np.random.Generator:
    """Return a generator for draws that numpy makes (partitions)."""
    return np.random.default_rng(key_for(seed, *key))


@contextlib.contextmanager
def seeded_torch(seed: int) -> Iterator[None]:
    """Seed torch's global generator inside the block and restore its state afterward.

    For code that takes no generator: the initialization and the dropout layers of torch modules.
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        # Not torch.manual_seed: without a GPU it queues a call for later, with a stack trace, every time.
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed_all(seed)
        yield


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch use a single thread inside the block, so that sums do not depend on the number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def random_state(device: torch.device) -> torch.Tensor:
    """Return the state of the generator that layers on a device draw from."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_random_state(device: torch.device, state: torch.Tensor) -> None:
    """Restore a state of that generator."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
