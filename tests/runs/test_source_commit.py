"""environment.json tells which commit of fedsol a run was made with, where there is one."""

import json
import subprocess

import pytest

import fedsol
from fedsol.runs import environment as runs


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with the package at src/fedsol, as fedsol's own."""
    root = tmp_path / "checkout"
    source = root / "src" / "fedsol" / "runs" / "environment.py"
    source.parent.mkdir(parents=True)
    source.write_text("# as committed\n")
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    monkeypatch.setattr(runs, "__file__", str(source))
    return root


def source_commit():
    """What a process that starts now would record."""
    return runs.source_commit.__wrapped__()


def test_the_commit_and_whether_files_were_changed(checkout):
    head = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    assert source_commit() == {"commit": head.strip(), "commit_modified": False}
    (checkout / "notes.txt").write_text("not a part of the package")
    assert source_commit()["commit_modified"] is False
    (checkout / "src" / "fedsol" / "runs" / "environment.py").write_text("# changed\n")
    assert source_commit()["commit_modified"] is True


def test_nothing_is_said_outside_a_checkout_or_without_git(checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert source_commit() == {}
    monkeypatch.setattr(runs, "__file__", str(tmp_path / "lib/site-packages/fedsol/runs/environment.py"))
    assert source_commit() == {}


def test_a_broken_repository_is_no_reason_to_fail(checkout):
    (checkout / ".git" / "HEAD").write_text("nonsense")
    assert source_commit() == {}


def test_a_run_records_it(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "source_commit", lambda: {"commit": "abc", "commit_modified": True})
    fedsol.train(tiny, out=tmp_path / "run")
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert (environment["commit"], environment["commit_modified"]) == ("abc", True)
