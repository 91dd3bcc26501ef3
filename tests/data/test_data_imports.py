"""Objects that a user names: `module:name` and `file.py:name`."""

import sys

import pytest

from fedsol.core.imports import import_object
from fedsol.errors import InputError


@pytest.fixture(autouse=True)
def _modules_forgotten():
    before, path = set(sys.modules), list(sys.path)
    yield
    assert sys.path == path, "the import path is left as it was"
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_from_an_installed_module() -> None:
    from fedsol.data.types import Dataset

    assert import_object("fedsol.data.types:Dataset", "x") is Dataset
    assert import_object("pathlib:Path.cwd", "x")


def test_from_a_module_in_the_current_folder(tmp_path, monkeypatch) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 6\n")
    (tmp_path / "mine_in_cwd.py").write_text("import beside\nvalue = beside.VALUE + 1\n")
    monkeypatch.chdir(tmp_path)
    assert import_object("mine_in_cwd:value", "x") == 7


def test_from_a_file_once(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "own.py").write_text("from beside_own import made\nclass Own:\n    pass\n")
    (folder / "beside_own.py").write_text("made = 1\n")
    monkeypatch.chdir(tmp_path)
    found = import_object("sub/own.py:Own", "x")
    assert found is import_object(f"{folder}/own.py:Own", "x")
    assert sys.modules[found.__module__].made == 1


@pytest.mark.parametrize("reference", ["", "json", ":dumps", "json:", "file.py"])
def test_other_forms_are_refused(reference) -> None:
    with pytest.raises(InputError, match=r"model\.name: must be 'module:name'"):
        import_object(reference, "model.name")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("no_such_module:x", "no module 'no_such_module', neither installed nor in"),
        ("json.no_such:x", "no module 'json.no_such'"),
        ("no_such.py:x", r"no such file: .*no_such\.py"),
        ("json:no_such", "json.*has no 'no_such'; it has .*dumps"),
        ("broken.py:x", "could not be imported: SyntaxError"),
        ("broken:x", "could not be imported: SyntaxError"),
        ("failing.py:x", "could not be imported: ZeroDivisionError: division by zero"),
        ("failing:x", "could not be imported: ZeroDivisionError"),
        ("needing:x", "could not be imported: ModuleNotFoundError: No module named 'not_installed'"),
    ],
)
def test_failures_name_the_field_and_the_reference(reference, message, tmp_path, monkeypatch) -> None:
    (tmp_path / "broken.py").write_text("def\n")
    (tmp_path / "failing.py").write_text("1 / 0\n")
    (tmp_path / "needing.py").write_text("import not_installed\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message) as raised:
        import_object(reference, "data.source")
    assert str(raised.value).startswith(f"data.source: {reference!r}")


def test_a_file_that_failed_is_read_again(tmp_path) -> None:
    path = tmp_path / "fixed.py"
    path.write_text("1 / 0\n")
    with pytest.raises(InputError):
        import_object(f"{path}:x", "f")
    path.write_text("x = 'now it is right'\n")
    assert import_object(f"{path}:x", "f") == "now it is right"
