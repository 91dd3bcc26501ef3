"""Fixtures that several test files share."""

import ctypes
import gc
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from fedsol import Experiment

REPOSITORY = Path(__file__).resolve().parents[1]
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""

# No test depends on timing, and every run of the suite tries the same examples.
settings.register_profile("fedsol", deadline=None, derandomize=True)
settings.load_profile("fedsol")


# A shell lets what it starts in the background ignore Ctrl-C; the programs that tests start must hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The system zeroes every page before it gives it out again: keep what models and messages free, but nothing large.
if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
    mallopt(M_MMAP_THRESHOLD, 2**25)
    mallopt(M_TRIM_THRESHOLD, 2**28)

MEMORY = Path("/dev/shm")
"""Files in memory: tests flush thousands of small ones, and none of them has to survive a loss of power."""

SLOW = (
    "test_deployment.py",
    "test_simulation.py",
    "test_walkthrough.py",
    "test_tutorials.py",
    "test_kills.py",
    "test_export.py",
    "test_report_browser.py",
)
"""Files whose tests mostly wait for other processes: started first, so that they overlap with the rest."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one more than there are cores, as some tests wait for other processes."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    """Let temporary folders lie in memory, where there is plenty of it."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 * 2**30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_finish() -> None:
    """Keep what was imported and collected out of every later search for garbage."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slow tests first; the rest stays as it is."""
    items.sort(key=lambda item: item.path.name not in SLOW)


@pytest.fixture(autouse=True)
def _same_everywhere():
    """One thread, as in every engine, and the same random numbers whatever tests ran before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny() -> Experiment:
    """Two quick rounds on the embedded data."""
    return Experiment(
        rounds=2,
        data={"partition": {"clients": 8}},
        server={"fraction": 0.5},
        client={"epochs": 1},
        algorithm={"name": "fedavg"},
        engine={"kind": "local"},
    )


@pytest.fixture(scope="session")
def real_data(tmp_path_factory) -> Path:
    """A folder with the genuine CIFAR-10, MNIST and a PathMNIST sample, where they are at hand."""
    unpack = REPOSITORY.parent / "shared" / "data" / "unpack"
    if not unpack.is_file():
        pytest.skip(f"{unpack} is not here: no real CIFAR-10 and MNIST to test with")
    folder = tmp_path_factory.mktemp("real-data")
    subprocess.run([sys.executable, str(unpack), str(folder)], check=True, capture_output=True)
    return folder
