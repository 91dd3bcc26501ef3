"""The tables in the docs are those that the results give."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_page_of_personal_models_is_current():
    script = REPOSITORY / "tools" / "personal_table.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"run python {script} {done.stderr}"
