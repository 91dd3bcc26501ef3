"""The files of a dataset: downloaded, verified and extracted, complete or not at all.

Files are in `root/<dataset>/` under their publishers' names, downloaded or put there by hand; both are verified before
use. Hashing gigabytes at every start would be slow, so `.verified.json` in that folder records each file's checksum
with its size and modification time; a file is hashed again if either has changed.

The environment variable `FEDSOL_MIRROR` is a base address (http or https) that replaces the publishers', for machines
behind a firewall: a file is then downloaded from `<FEDSOL_MIRROR>/<dataset>/<file name>`.
"""

import hashlib
import json
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from fedsol.core.files import make_directory, write_atomically
from fedsol.data.types import DatasetSpec, RemoteFile
from fedsol.errors import InputError

MARKER = ".verified.json"
MIRROR_VARIABLE = "FEDSOL_MIRROR"
CHUNK = 1 << 18
TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class FileResult:
    """The state of a file or folder of a dataset; `detail` is its checksum or size, or what is wrong."""

    path: Path
    status: Literal["ok", "missing", "wrong"]
    detail: str


@dataclass(frozen=True)
class DatasetFiles:
    """The files of one dataset below `root`; a file that is not `verified` yet is hashed."""

    spec: DatasetSpec
    root: Path
    verified: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def remembered(cls, spec: DatasetSpec, root: Path) -> "DatasetFiles":
        """Return the files with the checksums that were recorded earlier."""
        return cls(spec, root, _read_marker(root / spec.name))

    @property
    def folder(self) -> Path:
        return self.root / self.spec.name

    def results(self) -> list[FileResult]:
        """Return the state of every file of the dataset."""
        results: list[FileResult] = []
        for remote in self.spec.files:
            path, target = self.folder / remote.name, self.folder / remote.extracts_to
            if path.is_file() or not remote.extracts_to or not target.exists():
                results.append(self._checked(path, remote.checksum))
            if remote.extracts_to and target.exists():
                results += self._extracted(remote)
        return [*results, *_folder_results(self.spec.folders, self.folder)]

    def prepare(self, may_download: bool) -> None:
        """Make sure that every file exists, verified and extracted, or raise `InputError`."""
        for remote in self.spec.files:
            path, target = self.folder / remote.name, self.folder / remote.extracts_to
            if not path.is_file() and not (remote.extracts_to and target.exists()):
                if not may_download:
                    raise self._missing(remote)
                download(remote, self.spec.name, path)
            if path.is_file():
                _require(self._checked(path, remote.checksum), f"delete it and fetch {self.spec.name} again")
            if remote.extracts_to:
                if not target.exists():
                    extract(path, target, remote.unused)
                for result in self._extracted(remote):
                    _require(result, f"remove the folder {target} so that {remote.name} can be extracted again")
        for result in _folder_results(self.spec.folders, self.folder):
            _require(result, self.spec.by_hand)

    def _missing(self, remote: RemoteFile) -> InputError:
        name, url = self.spec.name, addresses(remote, self.spec.name)[0]
        return InputError(
            f"{name}: {self.folder / remote.name} is missing. Fetch it with 'fedsol data fetch {name} "
            f"--root {self.root}', or download {url} and put it there"
        )

    def _extracted(self, remote: RemoteFile) -> Iterator[FileResult]:
        target = self.folder / remote.extracts_to
        for member in remote.members:
            yield self._checked(target / member.path, member.checksum, member.size)
        yield from _folder_results(remote.folders, target)

    def _checked(self, path: Path, expected: str | None, size: int | None = None) -> FileResult:
        """Compare a file with its expected checksum and size, if they are known."""
        if not path.is_file():
            return FileResult(path, "missing", "no such file")
        found_size = path.stat().st_size
        if size not in (None, found_size):
            return FileResult(path, "wrong", f"has {found_size} bytes instead of {size}")
        if expected is None:
            return FileResult(path, "ok", f"{found_size} bytes")
        try:
            found = self._checksum(path, expected.partition(":")[0])
        except OSError as error:
            return FileResult(path, "wrong", f"cannot be read: {error.strerror}")
        if found != expected:
            return FileResult(path, "wrong", f"has checksum {found} instead of {expected}")
        return FileResult(path, "ok", expected)

    def _checksum(self, path: Path, algorithm: str) -> str:
        status, name = path.stat(), path.relative_to(self.folder).as_posix()
        entry = {"size": status.st_size, "mtime_ns": status.st_mtime_ns}
        known = self.verified.get(name)
        if isinstance(known, dict) and entry.items() <= known.items():
            checksum = known.get("checksum")
            if isinstance(checksum, str) and checksum.startswith(f"{algorithm}:"):
                return checksum
        checksum = checksum_of(path, algorithm)
        self.verified[name] = {**entry, "checksum": checksum}
        content = {**_read_marker(self.folder), **self.verified}
        with suppress(OSError):  # On a read-only disk, data is hashed at every start.
            write_atomically(self.folder / MARKER, json.dumps(content, indent=1, sort_keys=True))
        return checksum


def checksum_of(path: Path, algorithm: str) -> str:
    """Return the file's checksum as `algorithm:hex`."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{digest.hexdigest()}"


def addresses(remote: RemoteFile, dataset: str) -> tuple[str, ...]:
    """Return the addresses of a file: the mirror's if there is one, else the publisher's."""
    mirror = os.environ.get(MIRROR_VARIABLE, "").strip()
    if not mirror:
        return remote.urls
    if not mirror.startswith(("http://", "https://")):
        raise InputError(f"{MIRROR_VARIABLE}: must start with http:// or https:// (got {mirror!r})")
    return (f"{mirror.rstrip('/')}/{dataset}/{remote.name}",)


def download(remote: RemoteFile, dataset: str, path: Path) -> None:
    """Download a file to `path`, where it appears only once it is complete and has the right checksum."""
    import pooch
    from requests.exceptions import RequestException

    pooch.get_logger().setLevel("WARNING")  # the progress bar is enough
    urls, failures = addresses(remote, dataset), []
    make_directory(path.parent)
    for url in urls:
        try:
            stream = partial(_stream, path.name)
            pooch.retrieve(url, known_hash=remote.checksum, fname=path.name, path=path.parent, downloader=stream)
            return
        except RequestException as error:
            failures.append(f"{url}: {_innermost(error)}")
        except ValueError:
            failures.append(f"{url}: the download does not have the checksum {remote.checksum} and was deleted")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    raise InputError(
        f"{dataset}: {remote.name} could not be downloaded ({'; '.join(failures)}). "
        f"Check the connection and try again, or download {urls[0]} elsewhere and put it at {path}"
    )


def _stream(name: str, url: str, output: str, _pooch: object) -> None:
    """Download to a file, with a progress bar on standard error if that is a terminal."""
    import requests
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    # Without this header a server may compress the file, whose bytes would then differ from the published ones.
    headers = {"Accept-Encoding": "identity"}
    with (
        requests.get(url, stream=True, timeout=TIMEOUT_SECONDS, headers=headers) as response,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        Path(output).open("wb") as file,
    ):
        response.raise_for_status()
        size = int(response.headers.get("Content-Length", 0))
        task = progress.add_task(name, total=size or None)
        for chunk in response.iter_content(CHUNK):
            file.write(chunk)
            progress.advance(task, len(chunk))


def _innermost(error: BaseException) -> str:
    """Return the innermost of nested network errors: the most specific one."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error) or type(error).__name__


def extract(archive: Path, target: Path, unused: Collection[str] = ()) -> None:
    """Extract a tar archive into the folder `target`, complete or not at all.

    A top-level folder with the name of `target` becomes it. Entries of the target in `unused` are skipped. An archive
    with anything but plain files and folders below its own root is refused.
    """

    def selected(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
        parts = _safe_parts(member, archive)
        parts = parts[1:] if parts[:1] == (target.name,) else parts
        if not parts or parts[0] in unused:
            return None
        if member.isreg() and Path(folder, *parts).exists():
            raise InputError(f"{archive}: refused, {member.name!r} occurs twice")
        return tarfile.data_filter(member.replace(name="/".join(parts), deep=False), folder)

    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        try:
            with tarfile.open(archive, "r:*") as content:
                content.extractall(temporary, filter=selected)
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            raise InputError(f"{archive}: cannot be extracted: {error}") from error
        temporary.chmod(0o755)  # mkdtemp makes its folders private
        try:
            temporary.rename(target)
        except OSError:
            # If another process was faster, its files are checked like any others.
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _safe_parts(member: tarfile.TarInfo, archive: Path) -> tuple[str, ...]:
    """Return the parts of a member's path; it must be a plain file or folder below the archive's root."""
    path = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()):
        raise InputError(f"{archive}: refused, {member.name!r} is neither a plain file nor a folder")
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or ":" in member.name:
        raise InputError(f"{archive}: refused, {member.name!r} would be written outside of its folder")
    return path.parts


def _read_marker(folder: Path) -> dict[str, Any]:
    """Return the recorded checksums; without a readable record, files are hashed again."""
    try:
        content = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _folder_results(names: tuple[str, ...], parent: Path) -> Iterator[FileResult]:
    for name in names:
        found = (parent / name).is_dir()
        yield FileResult(parent / name, "ok" if found else "missing", "folder" if found else "no such folder")


def _require(result: FileResult, remedy: str) -> None:
    if result.status != "ok":
        raise InputError(f"{result.path}: {result.detail}; {remedy}")
