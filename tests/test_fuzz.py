"""Whatever is in an experiment file or a run directory: a correct run or a clear error comes out, nothing else."""

import contextlib
import shutil
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsol
from fedsol import Experiment, FedsolError, InputError
from fedsol.config.experiment import TABLES, read_toml
from tests.support.cases import experiment
from tests.support.runs import assert_same_run

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.floats(),
    st.sampled_from(
        ["", "digits", "fedsol", "scaffold", "dirichlet", "mean", "adam", "cnn", "cpu", "A3", "\x00", "../x"]
    ),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
KEYS = sorted({key for table in TABLES.values() for key in table.model_fields} | {"name", "rho", "usage", "rhoo"})


def table(depth):
    inner = VALUES if depth == 0 else st.one_of(VALUES, table(depth - 1))
    return st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)


@settings(max_examples=400)
@given(table(2))
def test_any_tables_are_an_experiment_or_a_clear_error(tables):
    try:
        made = Experiment(**tables)
    except InputError:
        return
    assert Experiment(**tomllib.loads(made.to_toml())) == made


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_toml_file_or_a_clear_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "experiment.toml"
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        read_toml(path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of a method with states, and its directory."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    made = experiment({"name": "scaffold"}, rounds=3)
    return made, fedsol.train(made, out=folder), folder


DAMAGE = st.tuples(
    st.integers(0, 10**6), st.sampled_from(["truncate", "flip", "empty", "remove", "garbage"]), st.integers(0, 10**6)
)


def damage(path: Path, kind: str, where: int) -> None:
    content = path.read_bytes()
    position = where % max(len(content), 1)
    if kind == "remove":
        path.unlink()
    elif kind == "truncate":
        path.write_bytes(content[:position])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "flip" and content:
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
    else:
        path.write_bytes(b"\x00garbage\xff" + content[position:])


@settings(max_examples=120)
@given(st.lists(DAMAGE, min_size=1, max_size=2))
def test_a_damaged_run_directory_resumes_exactly_or_says_why_not(finished, tmp_path_factory, damages):
    made, whole, folder = finished
    copy = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(folder, copy)
    for which, kind, where in damages:
        files = sorted(path for path in copy.rglob("*") if path.is_file())
        damage(files[which % len(files)], kind, where)
    try:
        again = fedsol.train(made, out=copy, resume=True)
    except FedsolError:
        return
    assert_same_run(again, whole)
