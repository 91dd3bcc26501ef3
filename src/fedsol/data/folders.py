"""Folders of images: listed, decoded once, and cached as a memory-mapped array.

The cache is one `.npy` file per set of images in a folder `.fedsol-cache`. Its name depends on the names, sizes and
modification times of the files and on how they were decoded, so changed images are decoded again.
"""

import hashlib
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsol.core.memory import require_memory
from fedsol.data.types import ImageOptions
from fedsol.errors import InputError

CACHE_FOLDER = ".fedsol-cache"
CACHE_VERSION = 1
GRAYSCALE_MODES = frozenset({"1", "L", "LA", "La"})
DEEP_MODES = ("I", "F")  # 16 or 32 bits per pixel: converting them to 8 bits would clip them silently

CLUTTER = frozenset({"thumbs.db", "desktop.ini", "ehthumbs.db", "icon\r", "__macosx"})
"""What file managers and archivers leave in folders, in lower case; hidden files are skipped anyway."""

log = logging.getLogger(__name__)

Layout = Literal["class", "client/class"]


@dataclass(frozen=True)
class ImageFile:
    """An image file, its class (the name of its folder) and, in the layout `client/class`, its client."""

    path: Path
    class_name: str
    client: str | None = None


def list_images(folder: Path, layout: Layout) -> list[ImageFile]:
    """Return every image below `folder`, sorted by name; hidden files and those of file managers are skipped."""
    clients: Sequence[Path | None] = [None] if layout == "class" else _subfolders(folder, "client")
    return [
        ImageFile(path, class_folder.name, client.name if client else None)
        for client in clients
        for class_folder in _subfolders(client or folder, "class")
        for path in _image_paths(class_folder)
    ]


def _visible(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            visible = sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: e.name)
    except OSError as error:
        raise InputError(f"{folder}: cannot be listed: {error.strerror}") from error
    clutter = [entry.path for entry in visible if entry.name.lower() in CLUTTER]
    for path in clutter:
        log.warning("%s: skipped; it is not an image", path)
    return [entry for entry in visible if entry.path not in clutter]


def _subfolders(folder: Path, kind: str) -> list[Path]:
    entries = _visible(folder)
    for entry in entries:
        if not entry.is_dir():
            raise InputError(f"{entry.path}: must be a folder of one {kind} (got a file)")
    if not entries:
        raise InputError(f"{folder}: must have one folder per {kind} (got an empty folder)")
    return [Path(entry.path) for entry in entries]


def _image_paths(folder: Path) -> list[Path]:
    entries = _visible(folder)
    for entry in entries:
        if entry.is_dir():
            raise InputError(f"{entry.path}: must be an image (got a folder); check data.layout")
        if not entry.is_file():
            raise InputError(f"{entry.path}: must be an image (got a broken link, a pipe or a device)")
    if not entries:
        raise InputError(f"{folder}: has no images")
    return [Path(entry.path) for entry in entries]


def image_files(folder: Path) -> list[Path]:
    """Return every file below a folder, at any depth, sorted by path; hidden ones are skipped."""
    found: list[Path] = []
    for entry in _visible(folder):
        found += image_files(Path(entry.path)) if entry.is_dir() else [Path(entry.path)]
    return found


def decode_now(paths: Sequence[Path], options: ImageOptions) -> NDArray[np.uint8]:
    """Return images as one uint8 array (N, C, H, W) in memory, without the cache."""
    if not paths:
        raise InputError(f"{options.cache}: has no images")
    files = [ImageFile(path, "") for path in paths]
    if options.channels is None:
        options = replace(options, channels=_channels_of(files))
    first = _decode_image(paths[0], options)
    require_memory(len(files) * first.nbytes, f"{options.cache}: the images")
    output = np.empty((len(files), *first.shape), dtype=np.uint8)
    _decode_all(files, output, options)
    return output


def decode(files: Sequence[ImageFile], folder: Path, options: ImageOptions) -> NDArray[np.uint8]:
    """Return the images as one memory-mapped uint8 array (N, C, H, W), decoded now or taken from the cache."""
    path = options.cache / f"{_cache_key(files, folder, options)}.npy"
    if not path.is_file():
        _write_cache(path, files, options)
    try:
        # Copy on write: torch does not accept read-only memory, and the file itself must not change.
        images: NDArray[np.uint8] = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: the cache file is damaged ({error}); delete it") from error
    return images


def _cache_key(files: Sequence[ImageFile], folder: Path, options: ImageOptions) -> str:
    digest = hashlib.sha256(f"{CACHE_VERSION} {options.image_size} {options.channels}".encode())
    for file in files:
        try:
            status = file.path.stat()
        except OSError as error:
            raise InputError(f"{file.path}: cannot be read: {error.strerror}") from error
        name = file.path.relative_to(folder).as_posix()
        digest.update(os.fsencode(f"\0{name}\0{status.st_size}\0{status.st_mtime_ns}"))
    return f"{folder.name}-{digest.hexdigest()[:16]}"


def _write_cache(path: Path, files: Sequence[ImageFile], options: ImageOptions) -> None:
    from PIL.Image import DecompressionBombWarning

    with warnings.catch_warnings():
        warnings.simplefilter("error", DecompressionBombWarning)
        _decode_to(path, files, options)


def _decode_to(path: Path, files: Sequence[ImageFile], options: ImageOptions) -> None:
    options = options if options.channels else replace(options, channels=_channels_of(files))
    first = _decode_image(files[0].path, options)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(prefix=f".{path.stem}-", dir=path.parent)
    except OSError as error:
        raise InputError(
            f"{path.parent}: cannot store decoded images ({error.strerror}); set data.cache to another folder"
        ) from error
    with temporary as folder:
        size, free = len(files) * first.nbytes, shutil.disk_usage(folder).free
        if size > free:  # a full disk would end the process while it writes to mapped memory
            raise InputError(
                f"{path.parent}: decoded images take {size / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free; set "
                "data.cache to another folder, or a smaller data.image_size"
            )
        output = np.lib.format.open_memmap(Path(folder, path.name), "w+", np.uint8, (len(files), *first.shape))
        _decode_all(files, output, options)
        output.flush()
        Path(folder, path.name).replace(path)


def _decode_all(files: Sequence[ImageFile], output: NDArray[np.uint8], options: ImageOptions) -> None:
    """Decode images in threads, with a progress bar on standard error if that is a terminal."""
    from rich.console import Console
    from rich.progress import track

    def store(index: int) -> None:
        path, pixels, shape = files[index].path, _decode_image(files[index].path, options), output.shape[1:]
        if pixels.shape != shape:
            raise InputError(
                f"{path}: must have the size of the first image, {shape[2]} x {shape[1]} "
                f"(got {pixels.shape[2]} x {pixels.shape[1]}); or set data.image_size to resize all images"
            )
        output[index] = pixels

    console = Console(stderr=True)
    with ThreadPoolExecutor() as pool:  # Pillow lets other threads run while it decodes
        try:
            stored = pool.map(store, range(len(files)))
            for _ in track(stored, "Decoding images", len(files), console=console, disable=not console.is_terminal):
                pass
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _channels_of(files: Sequence[ImageFile]) -> int:
    """Return 1 if every image is grayscale, else 3; only the files' headers are read."""
    for file in files:
        with _opened(file.path) as image:
            if image.mode not in GRAYSCALE_MODES:
                return 3
    return 1


def _decode_image(path: Path, options: ImageOptions) -> NDArray[np.uint8]:
    """Return one image as (C, H, W)."""
    size = options.image_size
    with _opened(path) as image:
        if image.mode.startswith(DEEP_MODES):
            raise InputError(f"{path}: must have 8 bits per channel (got the mode {image.mode})")
        try:
            if size is not None:
                # JPEG decoders can halve the size while they read: much faster, and still twice the size wanted.
                image.draft(None, (2 * size, 2 * size))
            decoded = image.convert("L" if options.channels == 1 else "RGB")
            pixels = np.asarray(decoded if size is None else square(decoded, size, path))
        except InputError:
            raise
        except FileNotFoundError as error:
            raise InputError(f"{path}: was removed while it was read") from error
        except Exception as error:  # Pillow's decoders may raise anything on a damaged file
            raise InputError(f"{path}: is damaged: {error}") from error
    return pixels[None] if options.channels == 1 else pixels.transpose(2, 0, 1)


def square(image: Any, side: int, path: Path | str) -> Any:
    """Resize the shorter side to `side` and crop the center."""
    from PIL.Image import MAX_IMAGE_PIXELS, Resampling

    width, height = image.size
    scale = side / min(width, height)
    width, height = max(side, round(width * scale)), max(side, round(height * scale))
    if width * height > MAX_IMAGE_PIXELS:
        raise InputError(
            f"data.image_size: {path} resized to {side} would have {width:,} x {height:,} pixels, more than the limit "
            f"of {MAX_IMAGE_PIXELS:,}"
        )
    image = image.resize((width, height), Resampling.BILINEAR)
    left, top = (width - side) // 2, (height - side) // 2
    return image.crop((left, top, left + side, top + side))


def _opened(path: Path) -> Any:
    from PIL import Image

    try:
        return Image.open(path)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(
            f"{path}: has more than {Image.MAX_IMAGE_PIXELS:,} pixels, the limit against decompression bombs; make "
            "the image smaller"
        ) from error
    except FileNotFoundError as error:
        raise InputError(f"{path}: was removed while the folder was read") from error
    except Exception as error:  # Pillow's decoders may raise anything on a damaged file
        raise InputError(f"{path}: cannot be read as an image") from error
