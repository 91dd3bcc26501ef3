"""The common look: no global state, deterministic files, colors that can be told apart."""

import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure
from PIL import Image

from fedsol.errors import InputError
from fedsol.plots.style import (
    DPI,
    LINE_COLORS,
    class_color,
    fedsol_style,
    line_look,
    new_figure,
    save_figure,
    text_color_on,
)


def small_figure() -> Figure:
    figure = new_figure(3.0, 2.0)
    figure.add_subplot().plot([0, 1], [1, 0], label="a")
    return figure


def test_settings_of_matplotlib_are_put_back() -> None:
    before = dict(matplotlib.rcParams)
    with fedsol_style():
        assert matplotlib.rcParams["savefig.dpi"] == DPI
    assert dict(matplotlib.rcParams) == before


def test_a_readers_own_configuration_changes_nothing(tmp_path: Path) -> None:
    with fedsol_style():
        plain = save_figure(small_figure(), tmp_path / "plain.png").read_bytes()
    with (
        matplotlib.rc_context({"axes.facecolor": "black", "font.size": 30, "savefig.dpi": 20}),
        fedsol_style(),
    ):
        assert save_figure(small_figure(), tmp_path / "own.png").read_bytes() == plain


@pytest.mark.parametrize("name", ["figure.png", "figure.pdf", "FIGURE.PNG"])
def test_equal_figures_give_equal_bytes(tmp_path: Path, name: str) -> None:
    first = save_figure(small_figure(), tmp_path / "one" / name)
    second = save_figure(small_figure(), tmp_path / "two" / name)
    assert first.read_bytes() == second.read_bytes()
    assert len(first.read_bytes()) > 1000
    assert [file.name for file in first.parent.iterdir()] == [name]


def test_files_say_nothing_about_when_and_how_they_were_made(tmp_path: Path) -> None:
    with Image.open(save_figure(small_figure(), tmp_path / "a.png")) as image:
        assert image.size == (3 * DPI, 2 * DPI)
        assert set(image.info) <= {"dpi"}
    assert b"CreationDate" not in save_figure(small_figure(), tmp_path / "a.pdf").read_bytes()


@pytest.mark.parametrize("name", ["figure.gif", "figure"])
def test_other_formats_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"must end in \.png or \.pdf"):
        save_figure(small_figure(), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"figure\.png: cannot be written"):
        save_figure(small_figure(), tmp_path / "file" / "figure.png")


def test_curves_and_classes_can_be_told_apart() -> None:
    looks = [line_look(index) for index in range(len(LINE_COLORS))]
    assert len({look["color"] for look in looks}) == len(LINE_COLORS) == 10
    assert len({look["marker"] for look in looks}) == len(LINE_COLORS)
    assert len({class_color(index) for index in range(24)}) == 24
    assert text_color_on((1.0, 1.0, 0.8)) != text_color_on((0.0, 0.2, 0.5))


def test_pyplot_is_never_imported() -> None:
    imports = "import sys, fedsol.plots.curves, fedsol.plots.partition"
    code = f"{imports}; print('matplotlib.pyplot' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
