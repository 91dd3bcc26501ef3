"""The table of datasets that fedsol knows by name, and how to load one."""

from pathlib import Path

from fedsol.data.files import DatasetFiles, FileResult
from fedsol.data.folders import CACHE_FOLDER, read_cinic10, read_imagenet100
from fedsol.data.readers import (
    read_cifar10,
    read_cifar100,
    read_digits,
    read_medmnist,
    read_mnist,
    read_svhn,
)
from fedsol.data.sources import (
    CIFAR10_FILES,
    CIFAR100_FILES,
    CINIC10_FILES,
    FASHION_MNIST_FILES,
    MNIST_FILES,
    PATHMNIST_FILES,
    SVHN_FILES,
    TISSUEMNIST_FILES,
)
from fedsol.data.types import Augmentation, Dataset, DatasetSpec, ReadOptions, Split
from fedsol.errors import InputError

CROP_AND_FLIP = Augmentation(pad=4, flip=True)
CROP_FLIP_AND_CUTOUT = Augmentation(pad=4, flip=True, cutout=16)


_ROWS = (
    DatasetSpec(
        name="digits",
        title="8 x 8 handwritten digits that come with scikit-learn: no download",
        classes=10,
        train_size=1_437,
        test_size=360,
        shape=(1, 8, 8),
        # Values 0 … 16 are stored times 15: with these a model sees value / 16.
        mean=(0.0,),
        std=(240 / 255,),
        reader=read_digits,
        clients=20,
        fraction=0.2,
        rounds=100,
        channels=1,
    ),
    DatasetSpec(
        name="mnist",
        title="28 x 28 grey handwritten digits",
        classes=10,
        train_size=60_000,
        test_size=10_000,
        shape=(1, 28, 28),
        mean=(0.1307,),
        std=(0.3081,),
        reader=read_mnist,
        clients=100,
        fraction=0.1,
        rounds=200,
        augmentation=CROP_AND_FLIP,
        files=MNIST_FILES,
    ),
    DatasetSpec(
        name="fashion-mnist",
        title="28 x 28 grey pictures of clothes",
        classes=10,
        train_size=60_000,
        test_size=10_000,
        shape=(1, 28, 28),
        mean=(0.2860,),
        std=(0.3530,),
        reader=read_mnist,
        clients=100,
        fraction=0.1,
        rounds=200,
        augmentation=CROP_AND_FLIP,
        files=FASHION_MNIST_FILES,
    ),
    DatasetSpec(
        name="cifar10",
        title="32 x 32 colour pictures of ten kinds of animals and vehicles",
        classes=10,
        train_size=50_000,
        test_size=10_000,
        shape=(3, 32, 32),
        mean=(0.49139968, 0.48215827, 0.44653124),
        std=(0.24703233, 0.24348505, 0.26158768),
        reader=read_cifar10,
        clients=100,
        fraction=0.1,
        rounds=300,
        augmentation=CROP_FLIP_AND_CUTOUT,
        files=CIFAR10_FILES,
    ),
    DatasetSpec(
        name="cifar100",
        title="32 x 32 colour pictures of a hundred kinds of things (the fine labels)",
        classes=100,
        train_size=50_000,
        test_size=10_000,
        shape=(3, 32, 32),
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        reader=read_cifar100,
        clients=100,
        fraction=0.1,
        rounds=300,
        augmentation=CROP_FLIP_AND_CUTOUT,
        files=CIFAR100_FILES,
    ),
    DatasetSpec(
        name="svhn",
        title="32 x 32 colour digits of house numbers, without the extra training images",
        classes=10,
        train_size=73_257,
        test_size=26_032,
        shape=(3, 32, 32),
        mean=(0.4376821, 0.4437697, 0.47280442),
        std=(0.19803012, 0.20101562, 0.19703614),
        reader=read_svhn,
        clients=100,
        fraction=0.1,
        rounds=200,
        augmentation=CROP_AND_FLIP,
        files=SVHN_FILES,
    ),
    DatasetSpec(
        name="cinic10",
        title="32 x 32 colour pictures, CIFAR-10's classes from CIFAR-10 and ImageNet",
        classes=10,
        train_size=90_000,
        test_size=90_000,
        shape=(3, 32, 32),
        mean=(0.47889522, 0.47227842, 0.43047404),
        std=(0.24205776, 0.23828046, 0.25874835),
        reader=read_cinic10,
        clients=200,
        fraction=0.05,
        rounds=300,
        augmentation=Augmentation(pad=4, pad_mode="reflect", flip=True),
        files=CINIC10_FILES,
    ),
    DatasetSpec(
        name="pathmnist",
        title="28 x 28 colour microscope pictures of nine kinds of colon tissue",
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
        files=PATHMNIST_FILES,
    ),
    DatasetSpec(
        name="tissuemnist",
        title="28 x 28 grey microscope pictures of eight kinds of kidney cells",
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
        files=TISSUEMNIST_FILES,
    ),
    DatasetSpec(
        name="imagenet100",
        title="a hundred classes of ImageNet from a folder of yours, made 64 x 64 (or image_size)",
        classes=100,
        train_size=126_689,
        test_size=5_000,
        shape=(3, 64, 64),
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        reader=read_imagenet100,
        clients=100,
        fraction=0.1,
        rounds=300,
        augmentation=CROP_FLIP_AND_CUTOUT,
        folders=("train", "val"),
        by_hand=(
            "ImageNet may not be passed on, so put there the images that you have of 100 classes, "
            "as train/<class>/*.JPEG and val/<class>/*.JPEG"
        ),
        image_size=64,
        exact_sizes=False,  # there are several choices of 100 classes, which differ in their number of images
    ),
)

SPECS: dict[str, DatasetSpec] = {row.name: row for row in _ROWS}


def find_spec(name: str) -> DatasetSpec:
    """The row of the table with this name."""
    if name not in SPECS:
        raise InputError(f"dataset: {name!r} is not known; known are {', '.join(SPECS)}")
    return SPECS[name]


def load(
    name: str,
    root: Path | str,
    download: bool = False,
    image_size: int | None = None,
    cache: Path | str | None = None,
) -> Dataset:
    """Load a dataset from `root/<name>/`, verified; with `download` what is missing is fetched first.

    `image_size` is for imagenet100 alone: the side in pixels its images are resized to. `cache` is where
    decoded images are kept, by default `.fedsol-cache` in the dataset's folder.
    """
    spec = find_spec(name)
    folder = Path(root) / name
    options = ReadOptions(_image_size(spec, image_size), folder / CACHE_FOLDER if cache is None else Path(cache))
    DatasetFiles.remembered(spec, Path(root)).prepare(download)
    train, test = spec.reader(folder, spec, options)
    _check_splits(spec, folder, train, test, stored_shape(spec, image_size))
    return Dataset(name, train, test, spec.classes, spec.mean, spec.std, spec.augmentation, spec.channels)


def fetch(name: str, root: Path | str) -> list[FileResult]:
    """Download what is missing of a dataset, verify and extract it; return what is there, file by file."""
    files = DatasetFiles.remembered(find_spec(name), Path(root))
    files.prepare(may_download=True)
    return files.results()


def verify(name: str, root: Path | str) -> list[FileResult]:
    """Hash every file of a dataset anew and return what is there; an empty list if it has no files."""
    return DatasetFiles(find_spec(name), Path(root)).results()


def stored_shape(spec: DatasetSpec, image_size: int | None = None) -> tuple[int, int, int]:
    """Shape of a stored image, (channels, height, width), if images are resized as asked for."""
    side = _image_size(spec, image_size)
    return spec.shape if side is None else (spec.shape[0], side, side)


def _image_size(spec: DatasetSpec, image_size: int | None) -> int | None:
    if image_size is None:
        return spec.image_size
    if spec.image_size is None:
        raise InputError(f"image_size: {image_size} cannot be set for {spec.name}, whose images are {spec.shape[1:]}")
    if image_size < 1:
        raise InputError(f"image_size: {image_size} is not allowed; it must be at least 1")
    return image_size


def _check_splits(spec: DatasetSpec, folder: Path, train: Split, test: Split, shape: tuple[int, int, int]) -> None:
    for part, split, size in (("training", train, spec.train_size), ("test", test, spec.test_size)):
        if tuple(split.inputs.shape[1:]) != shape:
            raise InputError(f"{folder}: {part} images are {tuple(split.inputs.shape[1:])} instead of {shape}")
        if spec.exact_sizes and len(split) != size:
            raise InputError(f"{folder}: holds {len(split)} {part} images; {spec.name} has {size}")
