"""The gallery page is the one that its script writes, and its pictures are there."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "gallery.md"


@pytest.fixture(scope="module")
def gallery():
    spec = importlib.util.spec_from_file_location("gallery", REPOSITORY / "tools" / "gallery.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["gallery"] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current(gallery):
    text = PAGE.read_text(encoding="utf-8")
    made = re.search(r"^Made by (.*)\.$", text, re.MULTILINE)[1]
    sections = [
        (entry, [gallery.IMAGES / f"{picture.replace('/', '-')}.png" for picture in entry.pictures])
        for entry in gallery.ENTRIES
    ]
    assert text == gallery.page(sections, made), "run `make gallery`"


def test_every_picture_is_there_and_small():
    shown = set(re.findall(r"\]\((images/gallery/[^)]+)\)", PAGE.read_text(encoding="utf-8")))
    kept = {f"images/gallery/{path.name}" for path in (REPOSITORY / "docs" / "images" / "gallery").iterdir()}
    assert shown == kept
    assert len(shown) >= 14
    assert all((REPOSITORY / "docs" / picture).stat().st_size < 300_000 for picture in shown)


def test_every_analysis_is_in_the_gallery(gallery):
    from fedsol.analysis import ANALYSES

    commands = " ".join(command for entry in gallery.ENTRIES for command in entry.commands)
    for name in set(ANALYSES) - {"partition"}:  # which has a command of its own
        assert f"--what {name}" in commands
    assert "partition quickstart" in commands
    assert "sweep quickstart" in commands


def test_what_is_there_is_not_made_again(gallery, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(gallery, "WORK", tmp_path)
    monkeypatch.setattr(gallery, "app", lambda arguments, standalone_mode: made.append(arguments))
    entry = gallery.Entry("a", "b", ("run --out x", "analyze x"), ("x/picture",))
    gallery.make(entry)
    assert made == [["run", "--out", "x", "--resume"], ["analyze", "x"]]
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "picture.png").write_bytes(b"")
    gallery.make(entry)
    assert len(made) == 2
