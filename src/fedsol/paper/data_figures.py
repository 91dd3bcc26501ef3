"""The paper's two figures of the data itself: partitions among ten clients, and images of the medical datasets."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedsol.analysis.base import Output
from fedsol.data.arrays import Source, samples_of
from fedsol.data.catalog import SPECS, load_dataset
from fedsol.data.manifest import Partition
from fedsol.data.readers import read_npz
from fedsol.data.summary import partition_summary
from fedsol.federation.federation import partition_of
from fedsol.paper.numbers import Key, figure_heading
from fedsol.paper.recipe import Cell, Figure, Folders, Ours, Table, UntrainedTable, titled
from fedsol.paper.selection import check_data, missing_files
from fedsol.paper.settings import CIFAR, DATASETS, METHODS, experiment

CLIENTS, SEED = 10, 0
LEVELS = {
    "Sharding": ("s = 2", "s = 3", "s = 5", "s = 10"),
    "LDA": ("alpha = 0.05", "alpha = 0.1", "alpha = 0.3", "alpha = 0.5"),
}
"""Those of the main table: the paper's figure does not say which ones it shows."""

MEDICAL = {
    "PathMNIST": "adipose, background, debris, lymphocytes, mucus, smooth muscle, normal mucosa, cancer stroma, "
    "adenocarcinoma",
    "TissueMNIST": "collecting duct, distal tubule, glomerular cells, interstitial cells, leukocytes, podocytes, "
    "proximal tubule, ascending limb",
}
"""The classes, by the names that MedMNIST gives them (shortened)."""


# --- partitions ------------------------------------------------------------------------------------------------------

SIZES = {
    "samples, min": "smallest",
    "samples, max": "largest",
    "classes, min": "fewest_classes",
    "classes, max": "most_classes",
}


def partitions() -> Figure:
    """Return the figure of CIFAR-10 split among ten clients at every level of heterogeneity."""
    cells = [
        Cell((kind, level, column), {"partition": kind.lower(), "level": level}, reads=CIFAR)
        for kind, levels in LEVELS.items()
        for level in levels
        for column in SIZES
    ]
    return Figure(UntrainedTable(figure_heading("partitions"), cells, _partition_sizes), _draw_partitions)


def _partitions(keys: Iterable[Key], root: Path) -> tuple[NDArray[Any], dict[str, Partition]]:
    """Return the labels, and which of ten clients has which of them at every level."""
    changes = {"seed": SEED, "data.partition.clients": CLIENTS, "data.root": str(root)}
    runs = {level: experiment(CIFAR, level, METHODS["FedAvg"], changes=changes) for _, level, _ in keys}
    dataset = load_dataset(next(iter(runs.values())).data)
    partitions = {level: [part.numpy() for part in partition_of(run, dataset)] for level, run in runs.items()}
    return dataset.train.labels.numpy(), partitions


def _partition_sizes(cells: Sequence[Cell], root: Path) -> dict[Key, Ours]:
    check_data([CIFAR], root)
    labels, partitions = _partitions((cell.key for cell in cells), root)
    classes = SPECS[CIFAR].classes
    found = {level: partition_summary(labels, partition, classes) for level, partition in partitions.items()}
    return {cell.key: Ours(float(getattr(found[cell.key[1]], SIZES[cell.key[2]]))) for cell in cells}


def _draw_partitions(table: Table, ours: Mapping[Key, Ours], folders: Folders) -> Output:
    from fedsol.plots.partition import draw_partitions

    labels, partitions = _partitions(ours, folders.data)
    rows = [
        {f"{kind}, {level}": partitions[level] for level in levels if level in partitions}
        for kind, levels in LEVELS.items()
    ]
    title = titled(f"CIFAR-10 among {CLIENTS} clients, seed {SEED}", table.cells, ours)
    return Output(draw_partitions(labels, rows, folders.out / "partitions", SPECS[CIFAR].classes, title), [])


# --- medical images --------------------------------------------------------------------------------------------------


def medical() -> Figure:
    """Return the figure of images of every class of the two medical datasets."""
    cells = [
        Cell(("", name, column), {"dataset": DATASETS[name]}, reads=DATASETS[name])
        for name in MEDICAL
        for column in ("images", "classes")
    ]
    return Figure(UntrainedTable(figure_heading("medical"), cells, _count_medical), _draw_medical)


def medical_file(dataset: str, root: Path) -> Path | None:
    """Return the dataset's own file or, as a figure needs few images, another one next to it with test images."""
    if not missing_files(dataset, root):
        return root / dataset / f"{dataset}.npz"
    others = sorted((root / dataset).glob("*.npz"))
    return next((path for path in others if {"test_images", "test_labels"} <= read_npz(path).keys()), None)


def _read(dataset: str, root: Path) -> tuple[Path, NDArray[np.uint8], NDArray[Any]]:
    path = medical_file(dataset, root)
    assert path is not None
    samples = samples_of(read_npz(path), "test_images", "test_labels", Source(str(path)))
    assert samples is not None
    assert isinstance(samples.inputs, Tensor)
    return path, samples.inputs.numpy(), samples.targets


def _count_medical(cells: Sequence[Cell], root: Path) -> dict[Key, Ours]:
    datasets = list(dict.fromkeys(cell.reads for cell in cells))
    check_data(datasets, root, [dataset for dataset in datasets if medical_file(dataset, root)])
    found: dict[Key, Ours] = {}
    for dataset in datasets:
        path, images, labels = _read(dataset, root)
        differs = () if path.stem == dataset else (f"drawn from {path}, as {dataset}.npz is missing",)
        values = {"images": len(images), "classes": len(np.unique(labels))}
        found |= {cell.key: Ours(float(values[cell.key[2]]), None, differs) for cell in cells if cell.reads == dataset}
    return found


def _draw_medical(table: Table, ours: Mapping[Key, Ours], folders: Folders) -> Output:
    from fedsol.plots.samples import ImageSet, draw_samples

    sets = {
        name: ImageSet(*_read(DATASETS[name], folders.data)[1:], classes.split(", "))
        for name, classes in MEDICAL.items()
        if any(key[1] == name for key in ours)
    }
    title = titled("The first test images of every class", table.cells, ours)
    return Output(draw_samples(sets, folders.out / "medical", title), [])
