"""The repository itself: the wheel works alone, the generated page is current, and forbidden things stay out."""

import ast
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.utils import canonicalize_name

from tools import commands, listing, method_costs
from tools.reference import render

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCES = sorted((REPOSITORY / "src").rglob("*.py"))


def test_the_reference_page_is_current():
    page = (REPOSITORY / "docs" / "experiment.md").read_text(encoding="utf-8")
    assert page == render(), "run `make docs`"


def test_the_page_of_commands_is_current():
    page = (REPOSITORY / "docs" / "commands.md").read_text(encoding="utf-8")
    assert page == commands.render(), "run `make docs`"


def test_the_names_that_are_listed_are_current():
    assert listing.PLACE.read_text(encoding="utf-8") == listing.render(), "run `make docs`"


def test_the_table_of_costs_is_current():
    page = (REPOSITORY / "docs" / "algorithms" / "README.md").read_text(encoding="utf-8")
    assert page == method_costs.page(), "run `make docs`"


def test_a_wheel_works_with_nothing_of_the_repository_beside_it(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(REPOSITORY)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    target = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    check = f"import fedsol; assert fedsol.__file__.startswith({str(target)!r}), fedsol.__file__"
    command = [sys.executable, "-c", f"{check}; from fedsol.__main__ import main; main()"]
    environment = {**os.environ, "PYTHONPATH": str(target)}
    for arguments in (
        ["list", "experiments"],
        ["list", "datasets"],
        ["run", "--set", "rounds=1", "--out", "run"],
        ["report", "run", "--out", "page.html"],
    ):
        done = subprocess.run([*command, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert (target / "fedsol" / "py.typed").is_file()
    assert (tmp_path / "run" / "metrics.jsonl").is_file()
    assert "fedsol report" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_nothing_is_unpickled_evaluated_or_imported_by_path():
    """No pickle, eval, exec or torch.load; numpy files are read without pickle; sys.path is left alone."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}, path
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"eval", "exec", "torch.load", "sys.path.insert", "sys.path.append"}, path
                if called == "np.load":
                    allowed = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                    assert allowed.get("allow_pickle") == "False", path


def test_files_stay_short_and_the_top_of_the_package_too():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {path: length for path, length in lengths.items() if length > 400} == {}
    assert len(list((REPOSITORY / "src" / "fedsol").glob("*.py"))) <= 3


def test_no_test_file_uses_another():
    """What tests share is in tests/support: also what an experiment names as `module:Class`."""
    for path in (REPOSITORY / "tests").rglob("*.py"):
        own = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"\btests(?:\.\w+)*\.test_\w+", text)) <= {own}, path
        assert not re.search(r"^\s*from\s+\.", text, re.M), path


def test_the_rooms_are_those_of_the_contract_and_of_the_documentation():
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    rooms = [layer.removeprefix("fedsol.") for layer in reversed(layers) if layer != "fedsol.errors"]
    folders = {path.parent.name for path in (REPOSITORY / "src" / "fedsol").glob("*/__init__.py")}
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert set(rooms) == folders
    assert re.findall(r"^  (\w+)/", page, re.M) == rooms


def test_every_installed_version_is_pinned():
    """What `make` installs is what constraints.txt says, so that a clone of today works tomorrow."""
    text = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pinned = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    for distribution in metadata.distributions(path=[sysconfig.get_path("purelib")]):  # not what packages bundle
        name = canonicalize_name(distribution.metadata["Name"])
        if name not in ("fedsol", "pip", "setuptools", "wheel"):
            assert pinned.get(name) == distribution.version.partition("+")[0], f"{name} {distribution.version}"
