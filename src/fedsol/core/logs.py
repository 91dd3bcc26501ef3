"""quiet(): hide what a logger says."""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def quiet(name: str, below: int = logging.ERROR) -> Iterator[None]:
    """Hide what a logger says below a level inside the block."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(below)
    try:
        yield
    finally:
        logger.setLevel(before)
