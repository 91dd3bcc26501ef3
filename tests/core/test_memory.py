"""What a process does with the memory that its tensors free."""

import ctypes
import multiprocessing
import resource
import sys

import pytest
import torch

from fedsol.core.memory import keep_freed_memory

SIZE, TENSORS = 2**24, 40
"""Floats of a tensor, more than glibc keeps by itself; and how many there are, one after the other."""


def count_fresh_pages(connection):
    """Send how many pages the system gives for tensors of which each is freed before the next."""
    torch.set_num_threads(1)
    keep_freed_memory()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(TENSORS):
        torch.ones(SIZE)
    connection.send(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="this memory is not glibc's"
)
def test_tensors_reuse_what_others_freed():
    context = multiprocessing.get_context("fork")  # the setting is for the life of a process
    ours, theirs = context.Pipe()
    process = context.Process(target=count_fresh_pages, args=(theirs,))
    process.start()
    pages = ours.recv()
    process.join()
    of_one = 4 * SIZE // resource.getpagesize()
    assert pages < TENSORS * of_one / 2
