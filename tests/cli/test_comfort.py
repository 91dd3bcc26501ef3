"""What people type first: short options, a file to start from, lists, and folders as they are."""

import csv
import json
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fedsol.config.experiment import TABLES, Experiment
from tests.support.cli import TINY, fedsol


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_short_options_are_the_settings_they_stand_for():
    done = fedsol("run", *TINY, "-a", "fedprox:mu=0.5", "--rounds", 1, "--seed", 3, "--out", "out")
    assert done.exit_code == 0, done.output
    saved = tomllib.loads(Path("out/experiment.toml").read_text())
    algorithm = saved["algorithm"]
    assert (algorithm["name"], algorithm["mu"], saved["rounds"], saved["seed"]) == ("fedprox", 0.5, 1, 3)
    again = fedsol("run", "out")
    assert "The run was already finished: 1 of 1 rounds; for more of them: fedsol run out --rounds 2" in again.output
    assert "resuming" not in again.output
    longer = fedsol("run", "out", "--rounds", 2)
    assert "resuming after round 1" in longer.output
    assert len(Path("out/metrics.jsonl").read_text().splitlines()) == 2


def test_wrong_short_options_are_one_message():
    for arguments, part in (
        (["-a", "fedsol:rhoo=1"], "algorithm.rhoo: unknown key; did you mean 'rho'?"),
        (["--rounds", "0"], "rounds: must be greater than or equal to 1 (got 0)"),
        (["--set", "rho=1"], "rho: unknown key; did you mean 'algorithm.rho'?"),
    ):
        done = fedsol("run", *arguments)
        assert (done.exit_code, part in done.output) == (2, True), done.output


def test_one_seed_has_no_spread():
    done = fedsol("compare", *TINY, "-a", "fedavg", "--seeds", "0", "--out", "out")
    assert done.exit_code == 0, done.output
    assert "±" not in done.output
    done = fedsol("compare", *TINY, "-a", "fedavg", "--seeds", "0,1", "--jobs", "2", "--out", "two")
    assert "mean ± std over seeds" in done.output
    assert "[2/2] fedavg seed" in done.output


def test_list_alone_shows_what_there_is():
    done = fedsol("list")
    assert done.exit_code == 0
    for name in ("algorithms", "datasets", "settings"):
        assert f"  {name} " in done.output
    assert json.loads(fedsol("list", "--json").output)[0]["name"] == "algorithms"


def test_list_settings_has_every_key():
    rows = json.loads(fedsol("list", "settings", "--json").output)
    keys = {(row["table"], row["name"]) for row in rows}
    tables = {tuple(f".{name}".rpartition(".")[::2]) for name in TABLES if name}
    every = {(name, key) for name, table in TABLES.items() for key in table.model_fields}
    assert every - keys == {(table.lstrip("."), key) for table, key in tables} | {("", "algorithm")}
    assert keys < every
    shown = fedsol("list", "settings", "data").output
    assert "[data.partition]" in shown
    assert "[client]" not in shown
    assert "did you mean 'client'" in fedsol("list", "settings", "clients").output
    assert fedsol("list", "models", "client").exit_code == 2


def test_init_writes_a_file_that_means_what_it_says():
    assert fedsol("init", "my.toml").exit_code == 0
    text = Path("my.toml").read_text()
    read = tomllib.loads(text)
    assert read["data"]["name"]
    every = "\n".join(
        line[1:] if line[:1] == "#" and line[1:2] not in (" ", "") else line for line in text.splitlines()
    )
    complete = "\n".join(line for line in every.splitlines() if not line.endswith("= …"))
    assert Experiment(**tomllib.loads(complete)) == Experiment(**read)  # what is commented out is the default
    assert "already exists" in fedsol("init", "my.toml").output


def test_init_for_a_table_of_ones_own():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(size=60), "ill": ["yes", "no"] * 30, "clinic": ["a", "b", "c"] * 20})
    frame.to_csv("patients.csv", index=False)
    assert "data.target: is missing" in fedsol("init", "my.toml", "--data", "patients.csv").output
    done = fedsol("init", "my.toml", "--data", "patients.csv", "--target", "ill", "--client", "clinic")
    assert "48 training and 12 test samples, 2 classes, 3 clients" in done.output
    done = fedsol("run", "my.toml", "--rounds", 1, "--set", "engine.kind=local", "--out", "out")
    assert done.exit_code == 0, done.output
    assert json.loads(Path("out/data.json").read_text())["client_names"] == ["a", "b", "c"]
    done = fedsol("personalize", "out", "--epochs", 1)
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(Path("out/personal/finetune/clients.csv").read_text().splitlines()))
    assert [row["name"] for row in rows] == ["a", "b", "c"]
    done = fedsol("analyze", "out", "--what", "partition,preservation")
    assert done.exit_code == 0, done.output
    assert json.loads(Path("out/analysis/partition-picture.json").read_text())["names"] == {
        "classes": ["no", "yes"],
        "clients": ["a", "b", "c"],
    }
    assert json.loads(Path("out/analysis/forgetting.json").read_text())[0]["runs"][0]["class_names"] == ["no", "yes"]


def test_a_folder_of_classes_as_it_is(caplog):
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        Path("pets", name).mkdir(parents=True)
        for number in range(10):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(Path("pets", name, f"{number}.png"))
    Path("pets/cat/Thumbs.db").write_bytes(b"no image")
    settings = ("--set", "data.name=pets", "--set", "data.partition.clients=2", "--set", "data.partition.kind=iid")
    assert "set data.test_fraction if the folders in it are those of the classes" in fedsol("run", *settings).output
    share = ("--set", "data.test_fraction=0.2", "--set", "engine.kind=local", "--rounds", 1, "--out", "out")
    done = fedsol("run", *settings, *share)
    assert done.exit_code == 0, done.output
    assert "Thumbs.db: skipped; it is not an image" in caplog.text
    assert json.loads(Path("out/data.json").read_text())["class_names"] == ["cat", "dog"]


def test_an_app_needs_no_data():
    three = ("--set", "data.name=cifar10", "--set", "data.partition.clients=3")
    done = fedsol("flower", "app", *three, "--out", "app")
    assert done.exit_code == 0, done.output
    assert "cifar10 is not here" in done.output
    assert not Path("data").exists()
