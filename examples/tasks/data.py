"""Real data for every kind of task, from packages that are installed with fedsol.

A loader returns arrays: inputs, targets and the names of the targets, and the client that each training sample belongs
to. Every fifth sample is in the test set. `python examples/tasks/data.py` writes breast_cancer.csv beside this file.
"""

import os
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

LOOPS = (0, 6, 8, 9)
WINDOW = 32
PAGES = ("assert", "await", "break", "class", "continue", "debugger", "for", "global", "if", "import")


def diabetes():
    """Regression: ten numbers about a patient, and the progression of the disease. Clients: decades of age."""
    inputs, progression = load_diabetes(return_X_y=True, scaled=False)
    decades = np.clip(inputs[:, 0] // 10, 3, 6).astype(int)
    in_test = np.arange(len(inputs)) % 5 == 0
    mean, std = inputs[~in_test].mean(axis=0), inputs[~in_test].std(axis=0)
    scaled = (inputs - mean) / std
    return {
        "x_train": scaled[~in_test],
        "y_train": progression[~in_test],
        "clients_train": decades[~in_test],
        "x_test": scaled[in_test],
        "y_test": progression[in_test],
        "class_names": ["progression"],
    }


def digit_properties():
    """Several labels: is the digit even, larger than 4, does it have a loop? Clients: pairs of neighboring digits."""
    digits = load_digits()
    labels = np.stack([digits.target % 2 == 0, digits.target > 4, np.isin(digits.target, LOOPS)], axis=1)
    return _split(_images(digits), labels, digits.target // 2, ["even", "larger than 4", "loop"])


def digit_strokes():
    """Segmentation: each pixel is background (0), a stroke of a digit without a loop (1), or of one with a loop (2)."""
    digits = load_digits()
    has_loop = np.isin(digits.target, LOOPS)
    strokes = (digits.images > 7) * (1 + has_loop[:, None, None])
    return _split(_images(digits), strokes, digits.target // 2, ["background", "stroke", "stroke of a loop"])


def python_help():
    """Next token: characters of Python's help pages, and of its license if it is installed. Clients: the pages."""
    pages = {name: topics[name] for name in PAGES if name in topics}
    license_file = Path(os.__file__).with_name("LICENSE.txt")
    if license_file.is_file():
        pages["LICENSE"] = license_file.read_text(encoding="utf-8")
    windows, clients = [], []
    for name, page in pages.items():
        codes = np.frombuffer(page.encode("ascii", "replace"), dtype=np.uint8).astype(np.int64)
        starts = range(0, min(len(codes), 6_000) - WINDOW - 1, WINDOW)
        windows += [codes[start : start + WINDOW + 1] for start in starts]
        clients += [name] * len(starts)
    text = np.stack(windows)
    return _split(text[:, :-1], text[:, 1:], np.array(clients), [repr(chr(code))[1:-1] for code in range(128)])


def _images(digits):
    return (digits.images * 15.9).astype(np.uint8)


def _split(inputs, targets, clients, names):
    """Every fifth sample is for the test."""
    in_test = np.arange(len(inputs)) % 5 == 0
    return {
        "x_train": inputs[~in_test],
        "y_train": targets[~in_test],
        "clients_train": clients[~in_test],
        "x_test": inputs[in_test],
        "y_test": targets[in_test],
        "class_names": names,
    }


def write_breast_cancer(path):
    """Write a table: five numbers and a category about a tumor, the diagnosis, and the hospital."""
    data = load_breast_cancer(as_frame=True)
    table = data.frame[["mean texture", "mean smoothness", "mean compactness", "mean concavity", "mean symmetry"]]
    table = table.round(4).assign(
        size=np.array(["small", "medium", "large"])[np.digitize(data.frame["mean radius"], [12, 15])],
        diagnosis=data.target_names[data.target],
        hospital=np.array(["north", "east", "south", "west"])[np.digitize(table["mean texture"], [16, 19, 22])],
    )
    table.to_csv(path, index=False)


if __name__ == "__main__":
    write_breast_cancer(Path(__file__).with_name("breast_cancer.csv"))
