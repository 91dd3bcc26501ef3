"""The one look of all fedsol figures, readable without colour vision or in grey, and a deterministic writer.

Figures are plain objects drawn by Agg; pyplot and its global state are never used, nor is a reader's own
matplotlib configuration.
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

BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, GREY, YELLOW = "#56B4E9", "#CC79A7", "#7F7F7F", "#F0E442"
PALETTE = (BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE, GREY, YELLOW)
"""Okabe and Ito's colours, strongest on white first; grey stands in for their black, which is for text."""

INK, FAINT = "#222222", "#D9D9D9"

LINE_COLORS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, INK, "#882255", GREY, "#A89500")
"""For lines the palette without its yellow, too faint on white; wine and olive extend it to ten."""

LINE_STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "h")

_STYLE: Any = {
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",  # comes with matplotlib, so figures are the same everywhere
    "font.size": 9.0,
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 9.0,
    "figure.titlesize": 11.0,
    "figure.titleweight": "bold",
    "axes.labelsize": 9.5,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.5,
    "pdf.fonttype": 42,
}

# Without these a file would tell when and with what it was made, and two equal figures would differ.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@contextlib.contextmanager
def fedsol_style() -> Iterator[None]:
    """Everything drawn inside the block has fedsol's look; matplotlib's settings are put back afterwards."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """Return a figure of this size in inches (150 pixels each) whose parts make room for each other."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    return figure


def light_grid(axes: Axes, which: Literal["both", "x", "y"] = "both") -> None:
    """Faint lines behind the data, and no tick marks that repeat them."""
    axes.grid(visible=True, axis=which)
    axes.tick_params(length=0)


def legend_outside(axes: Axes, handles: Sequence[Artist], labels: Sequence[str], **look: Any) -> None:
    """A legend to the right of the axes, where it hides no data; names may begin with an underscore."""
    axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.0, 1.0), **look)


def legend_below(axes: Axes, handles: Sequence[Artist], labels: Sequence[str], **look: Any) -> None:
    """A legend under the axes, one name per line: for names too many or too long to stand beside the data."""
    axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.0, -0.16), **look)


def line_look(index: int) -> dict[str, Any]:
    """Colour, line style and marker of a curve: neighbours differ in all three, also when printed in grey."""
    return {
        "color": LINE_COLORS[index % len(LINE_COLORS)],
        "linestyle": LINE_STYLES[index % len(LINE_STYLES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def class_color(index: int) -> tuple[float, float, float]:
    """Colour of a class: the palette, then lighter and darker versions of it (24 in all, then again)."""
    rgb = to_rgb(PALETTE[index % len(PALETTE)])
    tone = index // len(PALETTE) % 3
    if tone == 0:
        return rgb
    target = 1.0 if tone == 1 else 0.0
    red, green, blue = (0.45 * value + 0.55 * target for value in rgb)
    return red, green, blue


def text_color_on(rgb: tuple[float, float, float]) -> str:
    """Black or white, whichever is easier to read on this colour."""
    red, green, blue = rgb
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG or PDF, by the name's ending; equal figures give equal bytes."""
    target = Path(path)
    kind = target.suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise InputError(f"{target}: must end in .png or .pdf (got {target.suffix!r})")
    stream = io.BytesIO()
    with fedsol_style():
        figure.savefig(stream, format=kind, metadata=_METADATA[kind])
    return write_output(target, stream.getvalue())


def save_pictures(figure: Figure, stem: str | Path) -> list[Path]:
    """Writes the figure twice, as `stem.png` and `stem.pdf`."""
    return [save_figure(figure, f"{stem}.{kind}") for kind in _METADATA]
