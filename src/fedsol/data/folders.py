"""Folders of images: listed, decoded once, and kept as a memory-mapped array.

The cache is one `.npy` file per set of images in a folder `.fedsol-cache`; its name depends on the list of
files, their sizes and modification times, and on how they were decoded, so changed images are decoded again.
"""

import hashlib
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsol.data.arrays import make_split
from fedsol.data.types import DatasetSpec, ReadOptions, Split
from fedsol.errors import InputError

CACHE_FOLDER = ".fedsol-cache"
CACHE_VERSION = 1
GREY_MODES = frozenset({"1", "L", "LA", "La"})
DEEP_MODES = ("I", "F")  # 16 or 32 bits per pixel: 8-bit conversion would clip them without a word

Layout = Literal["class", "client/class"]


@dataclass(frozen=True)
class ImageFile:
    """An image in a folder, its class (the name of its folder) and, where the layout says it, its client."""

    path: Path
    class_name: str
    client: str | None = None


def read_cinic10(folder: Path, spec: DatasetSpec, options: ReadOptions) -> tuple[Split, Split]:
    """CINIC-10's folders `train` and `test` of PNG files; `valid` is not used."""
    train, test = (_read_classes(folder / "CINIC-10" / part, spec, options) for part in ("train", "test"))
    return train, test


def read_imagenet100(folder: Path, spec: DatasetSpec, options: ReadOptions) -> tuple[Split, Split]:
    """A user's folders `train` and `val` of images, in which the same 100 classes are folders.

    The shorter side is resized to `image_size` pixels and the centre cropped to a square.
    """
    listed = [list_images(folder / part, "class") for part in ("train", "val")]
    names = [{file.class_name for file in files} for files in listed]
    if names[0] != names[1]:
        odd = min(names[0] ^ names[1])
        raise InputError(f"{folder}: train and val must have the same classes; only one of them has {odd!r}")
    train, test = (_read_classes(folder / part, spec, options) for part in ("train", "val"))
    return train, test


def _read_classes(folder: Path, spec: DatasetSpec, options: ReadOptions) -> Split:
    files = list_images(folder, "class")
    names = sorted({file.class_name for file in files})
    if len(names) != spec.classes:
        raise InputError(f"{folder}: has {len(names)} folders of classes; {spec.name} has {spec.classes}")
    number = {name: index for index, name in enumerate(names)}
    labels = np.array([number[file.class_name] for file in files])
    images = decode(files, folder, options.image_size, 3, options.cache)
    return make_split(images, labels, spec.classes, folder)


def list_images(folder: Path, layout: Layout) -> list[ImageFile]:
    """Every image below `folder` in the order of the names; hidden files are passed over."""
    if layout == "class":
        return [
            ImageFile(path, class_folder.name)
            for class_folder in _subfolders(folder, "class")
            for path in _image_paths(class_folder)
        ]
    return [
        ImageFile(path, class_folder.name, client_folder.name)
        for client_folder in _subfolders(folder, "client")
        for class_folder in _subfolders(client_folder, "class")
        for path in _image_paths(class_folder)
    ]


def _visible(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: e.name)
    except OSError as error:
        raise InputError(f"{folder}: cannot be listed: {error.strerror}") from error


def _subfolders(folder: Path, kind: str) -> list[Path]:
    entries = _visible(folder)
    for entry in entries:
        if not entry.is_dir():
            raise InputError(f"{entry.path}: is a file where only folders, one per {kind}, are expected")
    if not entries:
        raise InputError(f"{folder}: is empty; it must have one folder per {kind}")
    return [Path(entry.path) for entry in entries]


def _image_paths(folder: Path) -> list[Path]:
    entries = _visible(folder)
    for entry in entries:
        if entry.is_dir():
            raise InputError(f"{entry.path}: is a folder where only images are expected; is it the right layout?")
    if not entries:
        raise InputError(f"{folder}: has no images")
    return [Path(entry.path) for entry in entries]


def decode(
    files: Sequence[ImageFile], folder: Path, image_size: int | None, channels: int | None, cache: Path
) -> NDArray[np.uint8]:
    """The images as one memory-mapped uint8 array (N, C, H, W), decoded now or taken from the cache.

    `image_size` None keeps the images as they are, which must then all have one size; a number resizes the
    shorter side to it and crops the centre to a square. `channels` 1 or 3 converts; None keeps grey images
    grey if all are.
    """
    path = cache / f"{_cache_key(files, folder, image_size, channels)}.npy"
    if not path.is_file():
        _write_cache(path, files, image_size, channels)
    try:
        # Copy on write: torch does not accept read-only memory, and the file itself must not change.
        images: NDArray[np.uint8] = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: this cached file is damaged ({error}); delete it") from error
    return images


def _cache_key(files: Sequence[ImageFile], folder: Path, image_size: int | None, channels: int | None) -> str:
    digest = hashlib.sha256(f"{CACHE_VERSION} {image_size} {channels}".encode())
    for file in files:
        status = file.path.stat()
        name = file.path.relative_to(folder).as_posix()
        digest.update(f"\0{name}\0{status.st_size}\0{status.st_mtime_ns}".encode())
    return f"{folder.name}-{digest.hexdigest()[:16]}"


def _write_cache(path: Path, files: Sequence[ImageFile], image_size: int | None, channels: int | None) -> None:
    from rich.console import Console
    from rich.progress import track

    channels = channels or _channels_of(files)
    first = _decode_image(files[0].path, channels, image_size, expected=None)
    temporary = _temporary_beside(path)
    try:
        output = np.lib.format.open_memmap(temporary, "w+", np.uint8, (len(files), *first.shape))

        def store(index: int) -> None:
            output[index] = _decode_image(files[index].path, channels, image_size, first.shape)

        with ThreadPoolExecutor() as pool:  # Pillow lets other threads run while it decodes
            try:
                stored = pool.map(store, range(len(files)))
                console = Console(stderr=True)
                hidden = not console.is_terminal
                for _ in track(stored, f"Decoding {path.stem}", total=len(files), console=console, disable=hidden):
                    pass
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        output.flush()
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _temporary_beside(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".npy", dir=path.parent)
    except OSError as error:
        raise InputError(
            f"{path.parent}: decoded images cannot be kept there ({error.strerror}); set data.cache to another folder"
        ) from error
    os.close(handle)
    return Path(name)


def _channels_of(files: Sequence[ImageFile]) -> int:
    """1 if every image is grey, else 3; only the files' headers are read."""
    for file in files:
        with _opened(file.path) as image:
            if image.mode not in GREY_MODES:
                return 3
    return 1


def _decode_image(
    path: Path, channels: int, image_size: int | None, expected: tuple[int, ...] | None
) -> NDArray[np.uint8]:
    """One image as (C, H, W), which must have the `expected` shape if there is one."""
    with _opened(path) as image:
        if image.mode.startswith(DEEP_MODES):
            raise InputError(f"{path}: has mode {image.mode}; only images of 8 bits per channel are read")
        try:
            if image_size is not None:
                # JPEG decoders can halve the size as they go: much faster, and still twice what is needed.
                image.draft(None, (2 * image_size, 2 * image_size))
            decoded = image.convert("L" if channels == 1 else "RGB")
        except (OSError, SyntaxError, ValueError) as error:
            raise InputError(f"{path}: is damaged: {error}") from error
        pixels = np.asarray(decoded if image_size is None else _square(decoded, image_size))
    pixels = pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
    if expected is not None and pixels.shape != expected:
        raise InputError(
            f"{path}: is {pixels.shape[2]} x {pixels.shape[1]} pixels, "
            f"the first image {expected[2]} x {expected[1]}; "
            "all must have one size, or set image_size to resize them"
        )
    return pixels


def _square(image: Any, side: int) -> Any:
    from PIL.Image import Resampling

    width, height = image.size
    scale = side / min(width, height)
    width, height = max(side, round(width * scale)), max(side, round(height * scale))
    image = image.resize((width, height), Resampling.BILINEAR)
    left, top = (width - side) // 2, (height - side) // 2
    return image.crop((left, top, left + side, top + side))


def _opened(path: Path) -> Any:
    from PIL import Image

    try:
        return Image.open(path)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: is not an image that can be read") from error
