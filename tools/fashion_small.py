"""Make the dataset that ships with fedsol, from Fashion-MNIST: `python -m tools.fashion_small FOLDER`.

FOLDER has the publisher's four files (`fedsol data fetch fashion-mnist` puts them into data/fashion-mnist). Of each
class the first 500 training and 100 test images, in the publisher's order, averaged 2 x 2 to 14 x 14.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsol.data.readers import EMBEDDED, read_idx

PARTS = {"train": ("train", 500), "test": ("t10k", 100)}
CLASSES = 10


def shrink(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Average squares of 2 x 2 pixels, halves rounded up."""
    count, height, width = images.shape
    squares = images.reshape(count, height // 2, 2, width // 2, 2).astype(np.uint16)
    return ((squares.sum(axis=(2, 4)) + 2) // 4).astype(np.uint8)


def first_of_each_class(labels: NDArray[np.uint8], count: int) -> NDArray[np.int64]:
    """Return where the first `count` samples of each class are, in the order of the file."""
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:count] for label in range(CLASSES)]))


def subset(folder: Path) -> dict[str, NDArray[np.uint8]]:
    """Return the arrays of the small dataset."""
    arrays = {}
    for part, (file, count) in PARTS.items():
        labels = read_idx(folder / f"{file}-labels-idx1-ubyte.gz", dimensions=1)
        chosen = first_of_each_class(labels, count)
        images = read_idx(folder / f"{file}-images-idx3-ubyte.gz", dimensions=3)[chosen]
        arrays[f"x_{part}"], arrays[f"y_{part}"] = shrink(images), labels[chosen]
    return arrays


def main() -> None:
    """Write the file, and print what belongs into datasets.toml."""
    arrays = subset(Path(sys.argv[1]))
    path = EMBEDDED / "fashion-small.npz"
    np.savez_compressed(path, **arrays)
    pixels = arrays["x_train"] / 255
    print(f"{path}: {path.stat().st_size} bytes; mean {pixels.mean():.4f}, std {pixels.std():.4f}")


if __name__ == "__main__":
    main()
