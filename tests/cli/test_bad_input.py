"""Bad input as a user meets it: exit code 2, one message that names field and value, no traceback."""

import os

import pytest

from tests.support.cli import TINY, fedsol


def refused(*arguments):
    """Return the message of a command that must refuse its input."""
    result = fedsol(*arguments)
    assert result.exit_code == 2, (result.exit_code, result.output, result.exception)
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "client.batch_size=9223372036854775808",
            "client.batch_size: must be a whole number of at most 64 bits (got 922",
        ),
        (
            "client.batch_size=9223372036854775807",
            "client.batch_size: must be less than or equal to 1000000000 (got 922",
        ),
        ("data.augmentation.pad=1000000000000", "data.augmentation.pad: must be less than or equal to 16384"),
        ("data.augmentation.cutout=1000000000000", "data.augmentation.cutout: must be less than or equal to 16384"),
        ("model.options.hidden=1000000000000", "model.options.hidden: must be an integer from 1 to 1000000"),
        ("client.optimizer_options.x=0x" + "f" * 5000, "client.optimizer_options.x: must be a whole number of at most"),
        (f"seed={'9' * 5000}", "--set seed: the value is too long or nested too deeply (got 999"),
        (f"data.private.mean={'[' * 5000}", "--set data.private.mean: the value is too long or nested too deeply"),
        ("model.options.x='\udcff'", "model.options.x: must be valid Unicode (got '\\udcff')"),
        ("rounds=1000000001", "rounds: must be less than or equal to 1000000000"),
    ],
)
@pytest.mark.parametrize("command", ["run", "estimate"])
def test_numbers_beyond_all_bounds_are_refused(command, setting, message):
    assert message in refused(command, *TINY, "--set", setting)


@pytest.mark.parametrize("text", [f"seed = {'9' * 5000}", f"seed = {'[' * 5000}", f"x = {{{'a.' * 3000}b = 1}}"])
def test_absurd_toml_is_one_message(tmp_path, text):
    (tmp_path / "big.toml").write_text(text)
    assert "big.toml: " in refused("run", tmp_path / "big.toml")


@pytest.mark.parametrize(
    "settings",
    [
        ("model.name=mlp", "model.options.hidden=1000000"),
        ("model.name=slvit", "model.options.dim_head=1000000", "model.options.heads=1000", "model.options.dim=1000000"),
    ],
)
def test_a_model_that_cannot_be_allocated_is_refused_with_its_size(settings):
    message = refused("run", *TINY, *(part for setting in settings for part in ("--set", setting)))
    assert "model.name: " in message
    assert " GB of memory, and this machine has " in message


def test_images_that_cannot_be_allocated_are_refused_with_their_size():
    pads = ("--set", "data.augmentation.pad=16384", "--set", "client.batch_size=1000")
    assert "data.augmentation.pad: a batch of" in refused("run", *TINY, *pads)
    private = ("--set", "data.name=private", "--set", "data.private.classes=2", "--clients", "2", "--examples", "5")
    shape = "data.private.shape=[1000000000, 1000000000, 1000000000]"
    assert "data.private.shape: " in refused("estimate", *private, "--set", shape)
    assert "imagenet100" in refused("estimate", "--set", "data.name=imagenet100", "--set", "data.image_size=16384")


@pytest.mark.parametrize("option", ["--rounds", "--clients", "--examples", "--per-round"])
def test_estimates_bound_their_counts(option):
    assert option in refused("estimate", option, "10000000000000000000000")


def test_a_billion_rounds_can_be_estimated():
    assert fedsol("estimate", *TINY, "--rounds", "1000000000").exit_code == 0


USERS_FILE = """
import dataclasses
import sys

import numpy as np
import torch
from torch import nn

import fedsol


def broken_loader():
    return {"x_train": 1 / 0}


def wrong_loader():
    tensors = torch.utils.data.TensorDataset(torch.zeros(4, 3), torch.zeros(4))
    return torch.utils.data.DataLoader(tensors)


def broken_factory(classes):
    raise ValueError("no such width")


def quitting_loader():
    sys.exit(0)


def quitting_factory(classes):
    sys.exit("no such model")


class QuitsLate(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.head = nn.Linear(64, classes)

    def forward(self, inputs):
        if self.training:
            sys.exit(5)
        return self.head(inputs.flatten(1))


class Late(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.head = nn.Linear(64, classes)

    def forward(self, inputs):
        if self.training:
            raise ValueError("not like this")
        return self.head(inputs.flatten(1))


@dataclasses.dataclass(frozen=True)
class Broken(fedsol.Algorithm):
    def gradient(self, task, weights, batch, state):
        return {}["gradient"]


@dataclasses.dataclass(frozen=True)
class BrokenServer(fedsol.Algorithm):
    def aggregate(self, server, updates):
        raise RuntimeError("server side")
"""


@pytest.fixture
def users_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(USERS_FILE)
    return path


CASES = [
    ("data.name", "broken_loader", "ZeroDivisionError: division by zero", 'return {"x_train": 1 / 0}'),
    ("model.name", "broken_factory", "ValueError: no such width", 'raise ValueError("no such width")'),
    ("model.name", "Late", "ValueError: not like this", 'raise ValueError("not like this")'),
    ("data.name", "quitting_loader", "SystemExit: 0", "sys.exit(0)"),
    ("model.name", "quitting_factory", "SystemExit: no such model", 'sys.exit("no such model")'),
    ("model.name", "QuitsLate", "SystemExit: 5", "sys.exit(5)"),
    ("algorithm.name", "Broken", "KeyError: 'gradient'", 'return {}["gradient"]'),
    ("algorithm.name", "BrokenServer", "RuntimeError: server side", 'raise RuntimeError("server side")'),
]


@pytest.mark.parametrize("engine", ["local", "workers"])
@pytest.mark.parametrize(("key", "name", "text", "line"), CASES)
def test_errors_in_own_code_name_the_file_and_the_line(tmp_path, users_file, engine, key, name, text, line):
    settings = ("--set", f"{key}={users_file}:{name}", "--set", f"engine.kind={engine}")
    message = refused("run", *TINY, *settings, "--out", tmp_path / "one")
    number = 1 + USERS_FILE.split("\n").index(next(one for one in USERS_FILE.split("\n") if line in one))
    assert f"{text} ({users_file}, line {number}, in " in message
    whole = fedsol("run", *TINY, *settings, "--out", tmp_path / "two", "--traceback").stderr
    assert "Traceback (most recent call last)" in whole
    assert line in whole


def test_a_file_with_a_mistake_names_the_line(tmp_path):
    (tmp_path / "mine.py").write_text("x = 1\ndef load(:\n")
    assert f"({tmp_path / 'mine.py'}, line 2)" in refused("run", *TINY, "--set", f"data.name={tmp_path}/mine.py:load")


def test_a_script_that_ends_by_itself_is_named(tmp_path):
    (tmp_path / "mine.py").write_text("import sys\nsys.exit(3)\n")
    message = refused("run", *TINY, "--set", f"data.name={tmp_path}/mine.py:load")
    assert f"could not be imported: SystemExit: 3 ({tmp_path / 'mine.py'}, line 2, in <module>)" in message


def test_a_loader_that_returns_a_stream_learns_what_to_return(users_file):
    message = refused("run", *TINY, "--set", f"data.name={users_file}:wrong_loader")
    assert "must be a map-style Dataset, with __getitem__ and __len__ (got a DataLoader)" in message


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("rho=1", "rho: unknown key; did you mean 'algorithm.rho'?"),
        ("alpha=1", "alpha: unknown key; did you mean 'data.partition.alpha' or 'model.lora.alpha'?"),
        ("client.rounds=1", "client.rounds: unknown key; did you mean 'rounds'?"),
        (
            "engine.device=gpu",
            "engine.device: must be 'cpu', 'cuda', 'cuda:0' (or a higher number), 'mps' or 'auto' (got",
        ),
        ("engine.device=cuda:x", "engine.device: must be 'cpu'"),
    ],
)
def test_a_setting_in_the_wrong_place_or_word_is_suggested(setting, message):
    assert message in refused("run", "--set", setting)


def test_an_optimizer_that_refuses_a_weight_is_refused_before_the_first_round(tmp_path):
    message = refused("run", *TINY, "--set", "client.optimizer=muon", "--out", tmp_path / "run")
    assert "client.optimizer: cannot use 'muon': it refuses 'body." in message
    assert not (tmp_path / "run").exists()
    message = refused("estimate", *TINY, "--set", "client.optimizer=adam", "--set", "client.optimizer_options.betas=5")
    assert "client.optimizer: cannot use 'adam' with {'betas': 5}: a plain step fails: " in message


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_names_that_are_no_unicode_can_be_printed(tmp_path):
    out = tmp_path / os.fsdecode(b"run-\xff")
    result = fedsol("run", *TINY, "--out", out)
    assert result.exit_code == 0, result.exception
    assert r"run-\udcff" in result.stdout
