"""What a process does with the memory that its tensors free."""

import ctypes
import multiprocessing
import resource
import sys

import pytest
import torch

from fedsol.core.memory import keep_freed_memory

SIZE = 2**22
"""Floats of a tensor: 4,096 pages of the usual size."""


def pages_for_tensors(count):
    """Return how many pages the system had to give for tensors, one after the other."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        torch.ones(SIZE)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def fresh_pages(connection):
    """Send how many pages the system had to give when some tensors were freed before."""
    torch.set_num_threads(1)
    keep_freed_memory()
    pages_for_tensors(10)
    connection.send(pages_for_tensors(5))


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="this memory is not glibc's"
)
def test_tensors_reuse_what_others_freed():
    context = multiprocessing.get_context("fork")  # the setting is for the life of a process
    ours, theirs = context.Pipe()
    process = context.Process(target=fresh_pages, args=(theirs,))
    process.start()
    pages = ours.recv()
    process.join()
    assert pages < 1_000
