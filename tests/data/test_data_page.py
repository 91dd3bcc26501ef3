"""The examples of docs/data.md run as they are."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
TABLES = PAGE[PAGE.index("### Tables") : PAGE.index("### Hugging Face")]


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", TABLES, re.S)
    return found


def test_the_table_of_patients_from_the_command_line_and_in_python(tmp_path):
    (tmp_path / "patients.csv").write_text(block("csv"))
    (tmp_path / "patients.toml").write_text(block("toml"))
    command = [sys.executable, "-m", "fedsol", "run", "patients.toml", "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 10
    done = subprocess.run([sys.executable, "-c", block("python")], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 0 <= float(done.stdout) <= 1
