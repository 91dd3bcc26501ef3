"""README.md: every block of code runs, and the links of the site fit. test_tutorials.py runs the tutorials."""

import re
import tomllib
from pathlib import Path

import pytest

import fedsol
from fedsol import api
from fedsol.core.files import read_json_lines
from tests.support import quick
from tests.support.cli import fedsol as command
from tools import settings_tried

REPOSITORY = Path(__file__).resolve().parents[1]
README = REPOSITORY / "README.md"


def blocks(page):
    """Yield the language and the text of every block of code."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


def run_shell(line):
    """Run one command as a user would: only what is installed, one short round, and no other shell."""
    first, *arguments = line.partition("#")[0].split()
    if first == "make":
        assert re.search(rf"^{arguments[0]}:", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.M)
        return
    if first == "pip":
        return
    assert first == "fedsol", line
    done = command(*arguments, *quick.options(arguments))
    assert done.exit_code == 0, done.output


def test_every_block_of_code_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(api, "experiment_of", quick.experiment_of())
    monkeypatch.chdir(tmp_path)
    names = {}
    for language, text in blocks(README):
        if language == "python":
            exec(compile(text, str(README), "exec"), names)
        elif language == "toml":
            assert fedsol.Experiment(**tomllib.loads(text)).rounds
        else:
            assert language == "sh"
            for line in text.splitlines():
                run_shell(line)


def test_the_readme_is_short():
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 100


def test_every_page_links_to_what_is_there():
    for page in [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.S)
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
            assert (page.parent / target).exists(), f"{page.relative_to(REPOSITORY)}: {target}"


def test_links_that_leave_the_documentation_become_pages_or_text():
    pytest.importorskip("mkdocs", reason="mkdocs is in the docs extra")
    from tools.site import relinked

    text = "[a](docs/data.md#tables) [b](LICENSE) ![c](docs/images/demo.png) [d](CONTRIBUTING.md) [e](https://x.org)"
    assert relinked(text, "README.md", "index.md") == (
        "[a](data.md#tables) b ![c](images/demo.png) [d](contributing.md) [e](https://x.org)"
    )
    text = "[a](../../CONTRIBUTING.md) [b](../data.md) [c](../../src/fedsol/api/__init__.py)"
    assert relinked(text, "docs/algorithms/x.md", "algorithms/x.md") == "[a](../contributing.md) [b](../data.md) c"


def test_the_page_of_settings_is_current():
    rows = read_json_lines(settings_tried.RESULTS)
    assert settings_tried.PAGE.read_text(encoding="utf-8") == settings_tried.page(rows), (
        "python -m tools.settings_tried --page"
    )


def test_every_page_has_its_place_in_the_site():
    navigation = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    pages = [path.relative_to(REPOSITORY / "docs").as_posix() for path in (REPOSITORY / "docs").rglob("*.md")]
    missing = [page for page in pages if not page.startswith("algorithms/") and f": {page}\n" not in navigation]
    assert missing == [], "add them to mkdocs.yml"
