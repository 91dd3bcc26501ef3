"""The table of datasets."""

import subprocess
import sys

import pytest
from pydantic import TypeAdapter, ValidationError

from fedsol.data.catalog import SPECS, find_spec, load
from fedsol.data.types import DatasetSpec
from fedsol.errors import InputError

NAMES = [
    "digits",
    "fashion-small",
    "mnist",
    "fashion-mnist",
    "cifar10",
    "cifar100",
    "svhn",
    "cinic10",
    "pathmnist",
    "tissuemnist",
    "imagenet100",
]
EMBEDDED = ("digits", "fashion-small")


def test_every_dataset_has_its_row() -> None:
    assert list(SPECS) == NAMES
    assert all(name == spec.name and spec.title for name, spec in SPECS.items())


@pytest.mark.parametrize("spec", SPECS.values(), ids=lambda spec: spec.name)
def test_rows_are_consistent(spec) -> None:
    assert len(spec.mean) == len(spec.std) == spec.shape[0]
    assert spec.channels == (1 if spec.name in EMBEDDED else 3)
    assert 0 < spec.fraction <= 1
    assert spec.clients * spec.fraction >= 1
    assert bool(spec.files) == (spec.name not in (*EMBEDDED, "imagenet100"))
    for remote in spec.files:
        algorithm, _, digest = remote.checksum.partition(":")
        assert (algorithm, len(digest)) == ("md5", 32)
        assert all(url.startswith("http") for url in remote.urls)


def test_the_papers_settings() -> None:
    rows = {name: (spec.clients, spec.fraction, spec.rounds) for name, spec in SPECS.items()}
    rows = {name: row for name, row in rows.items() if name not in EMBEDDED}  # not in the paper
    assert rows == {
        "mnist": (100, 0.1, 200),
        "fashion-mnist": (100, 0.1, 200),
        "cifar10": (100, 0.1, 300),
        "cifar100": (100, 0.1, 300),
        "svhn": (100, 0.1, 200),
        "cinic10": (200, 0.05, 300),
        "pathmnist": (200, 0.05, 200),
        "tissuemnist": (200, 0.05, 200),
        "imagenet100": (100, 0.1, 300),
    }


def test_an_unknown_name_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match=r"data.name: unknown value 'cifar11'; did you mean 'cifar10'"):
        find_spec("cifar11")
    with pytest.raises(InputError, match="unknown value 'cifar11'"):
        load("cifar11", tmp_path)


def test_the_table_is_read_without_heavy_imports() -> None:
    code = (
        "import sys, fedsol.data.catalog\n"
        "print([name for name in ('sklearn', 'scipy', 'PIL', 'pooch', 'rich') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_misspelled_key_in_the_table_is_refused() -> None:
    row = {**vars(SPECS["mnist"]), "roudns": 5}
    with pytest.raises(ValidationError, match="roudns"):
        TypeAdapter(DatasetSpec).validate_python(row)
