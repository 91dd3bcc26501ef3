"""Where noise comes from: the experiment's seed in a simulation, the operating system's entropy in a deployment."""

import math
import os
import secrets
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedsol.core.randomness import generator_for

Draw = Callable[[Sequence[int]], Tensor]
"""Returns standard normal numbers in double precision, of a shape; every call returns others."""

SIMULATED = "simulated noise: protects nobody"
"""What every output of a simulation says: whoever knows the seed can take the noise away."""

FROM_SYSTEM = "noise from the operating system's entropy"


def simulated(seed: int, *key: int | str) -> Draw:
    """Return the noise of a simulation, the same for the same key."""
    generator = generator_for(seed, "privacy", *key)
    return lambda shape: torch.randn(tuple(shape), generator=generator, dtype=torch.float64)


def from_system(shape: Sequence[int]) -> Tensor:
    """Return noise that nobody can repeat: Box and Muller's transform of the operating system's random bits."""
    half = (math.prod(shape) + 1) // 2
    bits = np.frombuffer(os.urandom(16 * half), dtype=np.uint64) >> np.uint64(11)
    uniform = (bits + np.uint64(1)) * 2.0**-53  # greater than 0, at most 1
    radius, angle = np.sqrt(-2 * np.log(uniform[:half])), 2 * math.pi * uniform[half:]
    normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[: math.prod(shape)]
    return torch.from_numpy(normal).reshape(tuple(shape))


def secret_sample(count: int, total: int) -> list[int]:
    """Return `count` of `total` numbers, ascending, that nobody can predict: sampling amplifies only while secret."""
    return sorted(secrets.SystemRandom().sample(range(total), count))
