"""The table of datasets that fedsol knows by name, and how to load one."""

from dataclasses import replace
from pathlib import Path

import torch

from fedsol.config.tables import unknown_name
from fedsol.data import readers, sources
from fedsol.data.files import DatasetFiles, FileResult
from fedsol.data.folders import CACHE_FOLDER
from fedsol.data.own import read_medmnist
from fedsol.data.types import Augmentation, Dataset, DatasetSpec, ImageOptions
from fedsol.errors import InputError

CROP_AND_FLIP = Augmentation(pad=4, flip=True)
CROP_FLIP_AND_CUTOUT = Augmentation(pad=4, flip=True, cutout=16)

_MNIST = DatasetSpec(
    name="mnist",
    title="28 x 28 grayscale handwritten digits",
    classes=10,
    train_size=60_000,
    test_size=10_000,
    shape=(1, 28, 28),
    mean=(0.1307,),
    std=(0.3081,),
    reader=readers.read_mnist,
    rounds=200,
    augmentation=CROP_AND_FLIP,
    files=sources.MNIST,
)
_CIFAR10 = DatasetSpec(
    name="cifar10",
    title="32 x 32 color images of ten kinds of animals and vehicles",
    classes=10,
    train_size=50_000,
    test_size=10_000,
    shape=(3, 32, 32),
    mean=(0.49139968, 0.48215827, 0.44653124),
    std=(0.24703233, 0.24348505, 0.26158768),
    reader=readers.read_cifar10,
    augmentation=CROP_FLIP_AND_CUTOUT,
    files=sources.CIFAR10,
)
_ROWS = (
    DatasetSpec(
        name="digits",
        title="8 x 8 handwritten digits that come with scikit-learn: no download",
        classes=10,
        train_size=1_437,
        test_size=360,
        shape=(1, 8, 8),
        # Values 0 … 16 are stored times 15; with these a model sees value / 16.
        mean=(0.0,),
        std=(240 / 255,),
        reader=readers.read_digits,
        clients=20,
        fraction=0.2,
        rounds=100,
        channels=1,
    ),
    _MNIST,
    replace(
        _MNIST,
        name="fashion-mnist",
        title="28 x 28 grayscale images of clothes",
        mean=(0.2860,),
        std=(0.3530,),
        files=sources.FASHION_MNIST,
    ),
    _CIFAR10,
    replace(
        _CIFAR10,
        name="cifar100",
        title="32 x 32 color images of a hundred kinds of things (the fine labels)",
        classes=100,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        reader=readers.read_cifar100,
        files=sources.CIFAR100,
    ),
    DatasetSpec(
        name="svhn",
        title="32 x 32 color digits of house numbers, without the extra training images",
        classes=10,
        train_size=73_257,
        test_size=26_032,
        shape=(3, 32, 32),
        mean=(0.4376821, 0.4437697, 0.47280442),
        std=(0.19803012, 0.20101562, 0.19703614),
        reader=readers.read_svhn,
        rounds=200,
        augmentation=CROP_AND_FLIP,
        files=sources.SVHN,
    ),
    DatasetSpec(
        name="cinic10",
        title="32 x 32 color images, CIFAR-10's classes from CIFAR-10 and ImageNet",
        classes=10,
        train_size=90_000,
        test_size=90_000,
        shape=(3, 32, 32),
        mean=(0.47889522, 0.47227842, 0.43047404),
        std=(0.24205776, 0.23828046, 0.25874835),
        reader=readers.read_cinic10,
        clients=200,
        fraction=0.05,
        augmentation=Augmentation(pad=4, pad_mode="reflect", flip=True),
        files=sources.CINIC10,
    ),
    DatasetSpec(
        name="pathmnist",
        title="28 x 28 color microscope images of nine kinds of colon tissue",
        classes=9,
        train_size=100_000,
        test_size=7_180,
        shape=(3, 28, 28),
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        reader=read_medmnist,
        clients=200,
        fraction=0.05,
        rounds=200,
        augmentation=Augmentation(flip=True),
        files=sources.PATHMNIST,
    ),
    DatasetSpec(
        name="tissuemnist",
        title="28 x 28 grayscale microscope images of eight kinds of kidney cells",
        classes=8,
        train_size=189_106,
        test_size=47_280,
        shape=(1, 28, 28),
        mean=(0.5,),
        std=(0.5,),
        reader=read_medmnist,
        clients=200,
        fraction=0.05,
        rounds=200,
        augmentation=Augmentation(flip=True),
        files=sources.TISSUEMNIST,
    ),
    DatasetSpec(
        name="imagenet100",
        title="a hundred classes of ImageNet from your own folder, resized to 64 x 64 (or image_size)",
        classes=100,
        train_size=126_689,
        test_size=5_000,
        shape=(3, 64, 64),
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        reader=readers.read_imagenet100,
        augmentation=CROP_FLIP_AND_CUTOUT,
        folders=("train", "val"),
        by_hand=(
            "ImageNet may not be redistributed: put your images of 100 classes there, "
            "as train/<class>/*.JPEG and val/<class>/*.JPEG"
        ),
        image_size=64,
        exact_sizes=False,  # there are several choices of 100 classes, with different numbers of images
    ),
)

SPECS: dict[str, DatasetSpec] = {row.name: row for row in _ROWS}


def find_spec(name: str) -> DatasetSpec:
    """Return the row of the table with this name."""
    if name not in SPECS:
        raise unknown_name("data.name", name, SPECS)
    return SPECS[name]


def load(
    name: str,
    root: Path | str,
    download: bool = False,
    image_size: int | None = None,
    cache: Path | str | None = None,
) -> Dataset:
    """Load a dataset from `root/<name>/`, verified; with `download`, missing files are fetched first.

    `image_size` is for imagenet100 alone: the side in pixels that its images are resized to. `cache` is the folder for
    decoded images, by default `.fedsol-cache` in the dataset's folder.
    """
    spec = find_spec(name)
    folder, shape = Path(root) / name, stored_shape(spec, image_size)
    side = None if spec.image_size is None else shape[1]
    options = ImageOptions(side, shape[0], folder / CACHE_FOLDER if cache is None else Path(cache))
    DatasetFiles.remembered(spec, Path(root)).prepare(download)
    train, test = spec.reader(folder, spec, options)
    for part, split, size in (("training", train, spec.train_size), ("test", test, spec.test_size)):
        found = tuple(split.inputs.shape[1:])
        if split.inputs.dtype != torch.uint8 or found != shape:
            raise InputError(f"{folder}: {part} images must be uint8 {shape} (got {split.inputs.dtype} {found})")
        if spec.exact_sizes and len(split) != size:
            raise InputError(f"{folder}: must have {size} {part} images (got {len(split)})")
    return Dataset(name, train, test, spec.classes, spec.mean, spec.std, spec.augmentation, spec.channels)


def fetch(name: str, root: Path | str) -> list[FileResult]:
    """Download the missing files of a dataset, verify and extract them; return the state of each file."""
    files = DatasetFiles.remembered(find_spec(name), Path(root))
    files.prepare(may_download=True)
    return files.results()


def verify(name: str, root: Path | str) -> list[FileResult]:
    """Hash every file of a dataset anew and return the state of each; an empty list if it has no files."""
    return DatasetFiles(find_spec(name), Path(root)).results()


def stored_shape(spec: DatasetSpec, image_size: int | None = None) -> tuple[int, int, int]:
    """Return the shape of a stored image, (channels, height, width), resized to `image_size` if that is set."""
    if image_size is None:
        return spec.shape
    if spec.image_size is None:
        raise InputError(f"data.image_size: must not be set for {spec.name}, whose images are not resized")
    if image_size < 1:
        raise InputError(f"data.image_size: must be at least 1 (got {image_size})")
    return (spec.shape[0], image_size, image_size)
