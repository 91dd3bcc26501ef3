"""Every command of docs/deployment.md, in its order, on this machine."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is an optional dependency: pip install 'fedsol[flower]'")


from tests.support.deployment import Deployment, free_port, listens

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "deployment.md"

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None or shutil.which("ssh-keygen") is None,
    reason="openssl and ssh-keygen make the certificates and keys of a deployment",
)


def blocks():
    """The shell blocks of the page; names and ports are those of this machine."""
    found = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)
    ports = {port: str(free_port()) for port in ("9092", "9094", "9095", "9096")}
    texts = []
    for text in found:
        here = text.replace("DNS:fl.example.org", "IP:127.0.0.1").replace("fl.example.org", "127.0.0.1")
        for port, free in ports.items():
            here = here.replace(port, free)
        texts.append(here.replace("--host 0.0.0.0", "--host 127.0.0.1"))
    return texts, int(ports["9092"])


def test_the_install_command_is_one_that_pip_takes():
    (install,) = [text for text in blocks()[0] if "pip install" in text]
    assert install == "pip install '.[flower]'\n"
    options = ["--dry-run", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, ".[flower]"], cwd=REPOSITORY, check=True)


@pytest.mark.full
def test_the_whole_page(tmp_path):
    texts, port = blocks()
    with Deployment(tmp_path) as deployment:
        for number, text in enumerate(text for text in texts if "pip install" not in text):
            if text.rstrip().endswith("&"):
                deployment.start(f"block-{number}", "bash", "-c", f"set -eu\n{text}\nwait")
                if "flower-superlink" in text:
                    deployment.wait_for(lambda: listens(port), "the SuperLink to listen")
            else:
                deployment.call("bash", "-c", f"set -eu\n{text}")
        rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
        assert len(rows) == 3
        for row in rows:
            assert (row["clients"], row["rejected"], row["dropped"], row["held_out_clients"]) == (3, 0, 0, 3)
        assert rows[-1]["test_accuracy"] > 0.3
        assert json.loads((tmp_path / "private-run" / "summary.json").read_text())["rounds"] == 1
        (private,) = [
            json.loads(line) for line in (tmp_path / "samples-run" / "metrics.jsonl").read_text().splitlines()
        ]
        assert (private["clients"], private["train_loss"], private["held_out_clients"]) == (3, None, 0)
        assert 0 < max(private["client_epsilon"]) == private["epsilon"] <= 8
        personal = (tmp_path / "run" / "personal" / "finetune" / "clients.csv").read_text().splitlines()
        assert len(personal) == 1 + 3, personal
        logs = deployment.logs()
        assert "Traceback" not in logs
