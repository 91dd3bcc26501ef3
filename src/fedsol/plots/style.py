"""The look of all fedsol figures, readable in gray and without color vision, and a deterministic writer.

Figures are plain objects drawn by Agg; pyplot, its global state and the user's own matplotlib configuration are not
used.
"""

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from fedsol.core.files import write_output
from fedsol.errors import InputError

DPI = 150
STYLE = Path(__file__).with_name("fedsol.mplstyle")

BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, GRAY, YELLOW = "#56B4E9", "#CC79A7", "#7F7F7F", "#F0E442"
PALETTE = (BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE, GRAY, YELLOW)
"""Okabe and Ito's colors, strongest on white first; gray replaces their black, which is for text."""

INK = "#222222"

LINE_COLORS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, INK, "#882255", GRAY, "#A89500")
"""The palette for lines: without yellow, which is too faint on white, and with wine and olive."""

LINE_STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "h")

# Without these, files would record when and how they were made, and equal figures would differ.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@contextlib.contextmanager
def fedsol_style() -> Iterator[None]:
    """Give everything drawn inside the block fedsol's look, then restore matplotlib's settings."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(matplotlib.rc_params_from_file(STYLE, use_default_template=False))
        yield


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """Return a figure of this size in inches (150 pixels each) whose parts make room for each other."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    return figure


def light_grid(axes: Axes, which: Literal["both", "x", "y"] = "both") -> None:
    """Draw faint lines behind the data in place of tick marks."""
    axes.grid(visible=True, axis=which)
    axes.tick_params(length=0)


def legend_outside(axes: Axes, handles: Sequence[Artist], labels: Sequence[str], **look: Any) -> None:
    """Put a legend to the right of the axes, where it hides no data; names may start with an underscore."""
    axes.legend(handles, labels, **{"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), **look})


def line_look(index: int) -> dict[str, Any]:
    """Return color, line style and marker of a curve; neighbors differ in all three."""
    return {
        "color": LINE_COLORS[index % len(LINE_COLORS)],
        "linestyle": LINE_STYLES[index % len(LINE_STYLES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def class_color(index: int) -> tuple[float, float, float]:
    """Return the color of a class: the palette, then lighter and darker versions of it (24 in all, then repeated)."""
    rgb = to_rgb(PALETTE[index % len(PALETTE)])
    tone = index // len(PALETTE) % 3
    red, green, blue = rgb if tone == 0 else (0.45 * value + 0.55 * (tone == 1) for value in rgb)
    return red, green, blue


def text_color_on(rgb: tuple[float, float, float]) -> str:
    """Return black or white, whichever is easier to read on this color."""
    red, green, blue = rgb
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def figure_bytes(figure: Figure, kind: str) -> bytes:
    """Return a figure as PNG or PDF; equal figures give equal bytes."""
    stream = io.BytesIO()
    with fedsol_style():
        figure.savefig(stream, format=kind, metadata=_METADATA[kind])
    return stream.getvalue()


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG or PDF, by the file's suffix."""
    target = Path(path)
    kind = target.suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise InputError(f"{target}: must end in .png or .pdf (got {target.suffix!r})")
    return write_output(target, figure_bytes(figure, kind))


def save_pictures(figure: Figure, stem: str | Path) -> list[Path]:
    """Write a figure twice, as `stem.png` and `stem.pdf`."""
    return [save_figure(figure, f"{stem}.{kind}") for kind in _METADATA]
