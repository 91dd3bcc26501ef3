"""The examples of docs/data.md run as they are."""

import re
import runpy
from pathlib import Path

from tests.support.cli import fedsol

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
TABLES = PAGE[PAGE.index("### Tables") : PAGE.index("### Hugging Face")]


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", TABLES, re.S)
    return found


def test_the_table_of_patients_from_the_command_line_and_in_python(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("patients.csv").write_text(block("csv"))
    Path("patients.toml").write_text(block("toml"))
    done = fedsol("run", "patients.toml", "--out", "run")
    assert done.exit_code == 0, done.output
    assert len(Path("run/metrics.jsonl").read_text().splitlines()) == 10
    Path("page.py").write_text(block("python"))
    capsys.readouterr()
    runpy.run_path("page.py")
    assert 0 <= float(capsys.readouterr().out) <= 1
