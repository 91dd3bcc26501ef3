"""Losses and metrics of a user's own, and answers without a value, from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.cli import TINY, fedsol

CODE = """
import sys
import torch.nn.functional as F

def good_loss(outputs, targets):
    return F.cross_entropy(outputs, targets)

def constant_loss(outputs, targets):
    return F.cross_entropy(outputs, targets).detach()

def losses(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")

def right(answers, targets):
    return (answers.argmax(dim=1) == targets).double().mean()

def broken(answers, targets):
    return answers.no_such_thing

def no_value(answers, targets):
    return float("nan")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(CODE)
    return tmp_path


def run(*settings, out="run"):
    return fedsol("run", *TINY, *(part for setting in settings for part in ("--set", setting)), "--out", out)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("task.loss=own.py:constant_loss", "task.loss: 'own.py:constant_loss' must be differentiable by the outputs"),
        ("task.loss=own.py:losses", "task.loss: 'own.py:losses' must return a tensor with one number, the mean"),
        ("task.metrics=['own.py:broken']", "task.metrics: 'own.py:broken' raised AttributeError: 'Tensor' object"),
    ],
)
def test_a_function_that_fails_is_refused_before_anything_is_written(setting, message, folder):
    done = run(setting)
    assert done.exit_code == 2, done.output
    assert f"error: {message}" in done.stderr
    assert not (folder / "run").exists()


def test_code_of_a_task_is_announced_and_a_prediction_needs_no_loss():
    Path("mine.toml").write_text("rounds = 1\n[task]\nloss = 'own.py:good_loss'\nmetrics = ['own.py:right']\n")
    said = "mine.toml: runs code that is not part of fedsol: task.loss = 'own.py:good_loss', task.metrics = 'own.py:rig"
    done = fedsol("run", "mine.toml", *TINY, "--out", "run")
    assert (done.exit_code, done.stderr.count(said)) == (0, 1), done.output
    np.savez("new.npz", inputs=np.zeros((2, 8, 8), np.uint8), labels=np.zeros(2, np.int64))
    evaluated = fedsol("evaluate", "run", "--data", "new.npz", "--json")
    assert "right" in json.loads(evaluated.stdout)
    assert "task.loss = 'own.py:good_loss'" in evaluated.stderr
    Path("own.py").unlink()
    assert fedsol("predict", "run", "new.npz").exit_code == 0
    assert fedsol("evaluate", "run", "--data", "new.npz").exit_code == 2


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_metric_without_a_value_leaves_the_run_intact(command, folder):
    settings = ("--set", "task.metrics=['own.py:no_value']", "--set", "rounds=1")
    done = fedsol(command, *TINY, *settings, *(["--seeds", "1"] if command == "compare" else []), "--out", "run")
    assert done.exit_code == 0, done.output
    assert "–" in done.stdout
    assert ".png" not in done.stdout
    assert not list(folder.rglob("curve*.png"))


def test_an_evaluation_shows_a_confusion_matrix_and_what_has_no_value():
    assert run("task.metrics=['accuracy', 'confusion', 'own.py:no_value']").exit_code == 0
    lines = fedsol("evaluate", "run").stdout.splitlines()
    assert any("no_value" in line and "–" in line for line in lines)
    metrics = json.loads(fedsol("evaluate", "run", "--json").stdout)
    shown = [line.split("│")[1:-1] for line in lines[lines.index("in %") :] if line.startswith("│")]
    assert [[int(cell) for cell in row[1:]] for row in shown] == metrics["confusion"]


def test_a_share_is_not_given_in_percent():
    done = run("server.stop_at=90")
    assert (done.exit_code, done.stderr) == (2, "error: server.stop_at: must be from 0 to 1 for accuracy (got 90)\n")
    assert "stop_at" not in run("task.metrics=['brier']", "server.stop_at=1.5").stderr
