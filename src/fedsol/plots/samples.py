"""Figure: examples of every class of some image datasets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsol.errors import InputError
from fedsol.plots.style import fedsol_style, new_figure, save_pictures

GAP = 2
"""White pixels between images."""


@dataclass(frozen=True)
class ImageSet:
    """Images (N, C, H, W) as uint8 with their labels, and the names of the classes."""

    images: NDArray[np.uint8]
    labels: NDArray[Any]
    classes: Sequence[str]


def draw_samples(sets: Mapping[str, ImageSet], stem: Path, title: str, columns: int = 8) -> list[Path]:
    """Draw the first images of every class, a row per class and a panel per set."""
    if not sets:
        raise InputError("there are no images to draw")
    with fedsol_style():
        figure = new_figure(5.4 * len(sets), 5.2)
        figure.suptitle(title)
        for axes, (name, found) in zip(figure.subplots(1, len(sets), squeeze=False).ravel(), sets.items(), strict=True):
            height, width = (side + GAP for side in found.images.shape[2:])
            axes.imshow(_montage(found, columns), interpolation="nearest")
            axes.set_title(name)
            axes.set_xticks([])
            axes.set_yticks([height * (row + 0.5) - GAP / 2 for row in range(len(found.classes))], list(found.classes))
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_xlim(-0.5, columns * width - GAP - 0.5)
        return save_pictures(figure, stem)


def _montage(found: ImageSet, columns: int) -> NDArray[np.uint8]:
    """Return one large RGB image; places without an example stay white."""
    height, width = (side + GAP for side in found.images.shape[2:])
    canvas = np.full((height * len(found.classes) - GAP, width * columns - GAP, 3), 255, dtype=np.uint8)
    for row in range(len(found.classes)):
        for column, index in enumerate(np.flatnonzero(found.labels == row)[:columns]):
            image = np.broadcast_to(found.images[index].transpose(1, 2, 0), (height - GAP, width - GAP, 3))
            canvas[row * height :, column * width :][: height - GAP, : width - GAP] = image
    return canvas
