"""A few real SIGKILLs at random instants; `make faults` does many."""

import random

import pytest
from kill_runs import ENGINES, METHODS, trial


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_run_resumes_to_bitwise_the_same_end(method, engine, tmp_path):
    assert trial(method, engine, 2, tmp_path, random.Random(f"{method} {engine}"), span=0.8) == 2
