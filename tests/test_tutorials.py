"""The tutorials: each page is a notebook too, and every cell of it runs."""

import contextlib
import os
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.support.deployment import free_port
from tests.support.quick import command_in
from tools.notebooks import PAGES, notebook

nbclient = pytest.importorskip("nbclient", reason="nbclient and ipykernel are in the dev extra")
nbformat = pytest.importorskip("nbformat", reason="nbclient and ipykernel are in the dev extra")
pytest.importorskip("ipykernel", reason="nbclient and ipykernel are in the dev extra")

REPOSITORY = Path(__file__).resolve().parents[1]
NAMES = sorted(page.stem for page in PAGES.glob("*.md"))
SHORT = """
import os
from pathlib import Path

from fedsol import api
from tests.support import quick

api.experiment_of = quick.experiment_of()
Path("kernel").write_text(str(os.getpid()))
"""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_notebooks_are_made_from_their_pages():
    assert len(NAMES) == 6
    assert sorted(path.stem for path in PAGES.glob("*.ipynb")) == NAMES
    for name in NAMES:
        page = PAGES / f"{name}.md"
        made = notebook(page)
        assert page.with_suffix(".ipynb").read_text(encoding="utf-8") == made, "run `make docs`"
        nbformat.validate(nbformat.reads(made, as_version=4))
        assert f"\n[Download this page as a notebook]({name}.ipynb).\n" in page.read_text(encoding="utf-8")


def test_blocks_of_a_page_become_cells(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\n[Download this page as a notebook](page.ipynb).\n\nText.\n\n```python\nx = 1\n\ny = 2\n```\n\n"
        '```sh\nfedsol list\n```\n\nMore,\n\n```text\nand output.\n```\n\n```toml title="a.toml"\nrounds = 1\n```\n'
    )
    cells = nbformat.reads(notebook(page), as_version=4).cells
    assert [(cell.cell_type, cell.source) for cell in cells] == [
        ("markdown", "# Title\n\nText."),
        ("code", "x = 1\n\ny = 2"),
        ("code", "%%bash -e\nfedsol list"),
        ("markdown", "More,\n\n```text\nand output.\n```"),
        ("code", "%%writefile a.toml\nrounds = 1"),
    ]
    assert len({cell.id for cell in cells}) == 5


def executed(name, folder, monkeypatch, changes=None):
    """Execute a tutorial with short trainings, as a user would in a folder of its own; return its cells.

    `changes` are texts to replace: ports, and how long something takes that is no training of a federation.
    """
    commands = folder / "bin"
    commands.mkdir()
    path = [str(commands), str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY), *sys.path[1:]]))
    found = nbformat.read(PAGES / f"{name}.ipynb", as_version=4)
    for cell in found.cells:
        for old, new in (changes or {}).items():
            cell.source = cell.source.replace(old, new)
    found.cells.insert(0, nbformat.v4.new_code_cell(SHORT))
    client = nbclient.NotebookClient(found, timeout=900, resources={"metadata": {"path": str(folder)}})
    try:
        with command_in(commands):
            client.execute()
    finally:  # what a cell started that failed half-way
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.killpg(int((folder / "kernel").read_text()), signal.SIGKILL)
    return found.cells[1:]


def shown(cells, kind):
    """Everything that the cells display in a form."""
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return [output["data"][kind] for output in outputs if kind in output.get("data", {})]


def printed(cells):
    """What the cells print."""
    return "".join(
        output["text"] for cell in cells for output in cell.get("outputs", []) if output.output_type == "stream"
    )


def test_first_run(tmp_path, monkeypatch):
    cells = executed("first-run", tmp_path, monkeypatch)
    run, metrics = shown(cells, "text/html")
    assert "<table" in run
    assert "data:image/png;base64," in run
    assert "test_accuracy" in metrics
    assert len(shown(cells, "image/png")) == 1
    for picture in ("curves.png", "preservation.png"):
        assert (tmp_path / "runs" / "first" / picture).stat().st_size > 10_000
    assert "fedsol ends " in printed(cells)


def test_own_data(tmp_path, monkeypatch):
    cells = executed("own-data", tmp_path, monkeypatch)
    assert "hospital 5" in printed(cells)
    assert "fedsol ends " in printed(cells)
    run, predictions = shown(cells, "text/html")
    assert "data:image/png;base64," in run
    assert predictions.count("<tr") == 1 + 5
    assert "malignant" in predictions


def test_own_model(tmp_path, monkeypatch):
    cells = executed("own-model", tmp_path, monkeypatch)
    assert (tmp_path / "runs" / "own" / "summary.json").is_file()
    assert " expected [" in printed(cells)


def test_own_algorithm(tmp_path, monkeypatch):
    cells = executed("own-algorithm", tmp_path, monkeypatch)
    (table,) = shown(cells, "text/html")
    assert "pulled:pull=1" in table
    assert len(shown(cells, "image/png")) == 1


def test_personal_models(tmp_path, monkeypatch):
    cells = executed("personal-models", tmp_path, monkeypatch, {"--epochs 50": "--epochs 1"})
    (accuracies,) = shown(cells, "text/html")
    assert "worst_decile" in accuracies
    assert "lose" in printed(cells)
    assert (tmp_path / "runs" / "personal" / "distribution.png").is_file()


def free_ports(count):
    """The first of some ports in a row that nobody uses now."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


@pytest.mark.full
@pytest.mark.skipif(shutil.which("bash") is None, reason="the nodes are started by a script for bash")
def test_three_machines(tmp_path, monkeypatch):
    pytest.importorskip("flwr", reason="Flower is an optional dependency: pip install 'fedsol[flower]'")
    first = free_ports(4)
    cells = executed("three-machines", tmp_path, monkeypatch, {"9092": str(first), "9094": str(first + 1)})
    assert len((tmp_path / "deployed" / "metrics.jsonl").read_text().splitlines()) == 1
    assert printed(cells).count(" equal\n") == 6
    assert "DIFFERENT" not in printed(cells)
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 1 + 143
