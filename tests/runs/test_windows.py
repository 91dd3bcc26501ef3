"""What Windows lacks is not needed for a run on the local engine."""

import ast
import io
import subprocess
import sys
from pathlib import Path

import fedsol
from fedsol.analysis.rounds import callbacks_for

SOURCES = Path(__file__).resolve().parents[2] / "src"
MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}
FUNCTIONS = {"fork", "getloadavg", "getuid", "geteuid", "killpg", "sched_getaffinity", "setsid", "statvfs", "sysconf"}

SCRIPT = f"""
import os, sys, warnings
for name in {MODULES}:
    sys.modules[name] = None
for name in {FUNCTIONS}:
    if hasattr(os, name):
        delattr(os, name)
warnings.simplefilter("ignore")
import importlib, pkgutil
from importlib.util import find_spec
import fedsol
import fedsol.cli.app
for module in pkgutil.walk_packages(fedsol.__path__, "fedsol."):
    if module.name.startswith(("fedsol.engines.flower.", "fedsol.deployment.")) and not find_spec("flwr"):
        continue
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
changes = {{"engine.kind": "local", "data.partition.clients": 5, "client.epochs": 1}}
for rounds in (1, 2):
    experiment = fedsol.Experiment().override({{**changes, "rounds": rounds}})
    run = fedsol.train(experiment, out=sys.argv[1], resume=rounds > 1)
assert len(run.rows) == 2
"""


def test_a_run_works_without_what_windows_lacks(tmp_path):
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_module_imports_at_its_top_what_windows_lacks():
    for path in SOURCES.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & MODULES, path


def test_lines_end_alike_on_every_system(tmp_path, monkeypatch):
    """Windows ends every line in its own way unless told otherwise; that would tear rows from their hashes."""
    original, endings = io.open, {}

    def opened(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, **others):
        if "b" not in mode and mode[0] in "aw":
            endings[Path(file).name] = newline
        return original(file, mode, buffering, encoding, errors, newline, **others)

    monkeypatch.setattr(io, "open", opened)
    experiment = fedsol.Experiment().override({"engine.kind": "local", "data.partition.clients": 5, "rounds": 1})
    analyses = callbacks_for(["divergence"], tmp_path / "run", experiment)
    fedsol.train(experiment.override({"client.epochs": 1}), analyses, tmp_path / "run")
    fedsol.personalize(tmp_path / "run", changes={"epochs": (0,)}, out=tmp_path / "personal")
    appended = {"metrics.jsonl", "divergence.jsonl", "clients.jsonl"}
    assert {name: endings.get(name) for name in appended} == dict.fromkeys(appended, "\n")
