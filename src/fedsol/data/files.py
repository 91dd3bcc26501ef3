"""The files of a dataset: are they there, are they right, and how to get them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedsol.data.archives import extract
from fedsol.data.checksums import verified_checksum
from fedsol.data.download import addresses, download
from fedsol.data.specs import DatasetSpec, Member, RemoteFile
from fedsol.errors import InputError


@dataclass(frozen=True)
class FileResult:
    """A file or folder of a dataset; `detail` says how it was verified or what is wrong."""

    path: Path
    status: Literal["ok", "missing", "wrong"]
    detail: str


def prepare(spec: DatasetSpec, root: Path, may_download: bool) -> None:
    """Make sure that every file of the dataset is there, verified and extracted, or say what is not."""
    folder = root / spec.name
    for remote in spec.files:
        path = folder / remote.name
        if path.is_file():
            _require(_checked_file(path, folder, remote.checksum), f"delete it and fetch {spec.name} again")
        elif not (remote.extracts_to and (folder / remote.extracts_to).exists()):
            _obtain(remote, spec, folder, may_download)
        if remote.extracts_to:
            _extracted(remote, folder)
    for result in _folder_results(spec.folders, folder):
        _require(result, spec.by_hand)


def inspect(spec: DatasetSpec, root: Path, trust_marker: bool = False) -> list[FileResult]:
    """What is there of the dataset, file by file. Without `trust_marker` every file is hashed anew."""
    folder = root / spec.name
    results: list[FileResult] = []
    for remote in spec.files:
        path = folder / remote.name
        target = folder / remote.extracts_to
        if path.is_file() or not remote.extracts_to or not target.exists():
            results.append(_checked_file(path, folder, remote.checksum, trust_marker))
        if remote.extracts_to and target.exists():
            results += _extracted_results(remote, folder, trust_marker)
    return results + _folder_results(spec.folders, folder)


def _obtain(remote: RemoteFile, spec: DatasetSpec, folder: Path, may_download: bool) -> None:
    path = folder / remote.name
    if not may_download:
        url = addresses(remote, spec.name)[0]
        raise InputError(
            f"{spec.name}: {path} is missing. Fetch it with 'fedsol data fetch {spec.name} --root {folder.parent}', "
            f"or download {url} and put it there"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be created: {error.strerror}") from error
    download(remote, spec.name, path)
    _require(_checked_file(path, folder, remote.checksum), f"delete it and fetch {spec.name} again")


def _extracted(remote: RemoteFile, folder: Path) -> None:
    target = folder / remote.extracts_to
    if not target.exists():
        extract(folder / remote.name, target, remote.unused)
    for result in _extracted_results(remote, folder, trust_marker=True):
        _require(result, f"remove the folder {target} so that {remote.name} can be extracted again")


def _extracted_results(remote: RemoteFile, folder: Path, trust_marker: bool) -> list[FileResult]:
    target = folder / remote.extracts_to
    members = [_checked_member(member, target, folder, trust_marker) for member in remote.members]
    return members + _folder_results(remote.folders, target)


def _checked_member(member: Member, target: Path, folder: Path, trust_marker: bool) -> FileResult:
    path = target / member.path
    if not path.is_file():
        return FileResult(path, "missing", "there is no such file")
    size = path.stat().st_size
    if size != member.size:
        return FileResult(path, "wrong", f"has {size} bytes instead of {member.size}")
    if member.checksum is None:
        return FileResult(path, "ok", f"{size} bytes")
    return _checked_file(path, folder, member.checksum, trust_marker)


def _checked_file(path: Path, folder: Path, expected: str, trust_marker: bool = True) -> FileResult:
    if not path.is_file():
        return FileResult(path, "missing", "there is no such file")
    algorithm = expected.partition(":")[0]
    try:
        found = verified_checksum(path, folder, algorithm, trust_marker)
    except OSError as error:
        return FileResult(path, "wrong", f"cannot be read: {error.strerror}")
    if found != expected:
        return FileResult(path, "wrong", f"has checksum {found} instead of {expected}")
    return FileResult(path, "ok", expected)


def _folder_results(names: tuple[str, ...], parent: Path) -> list[FileResult]:
    return [
        FileResult(parent / name, "ok", "folder")
        if (parent / name).is_dir()
        else FileResult(parent / name, "missing", "there is no such folder")
        for name in names
    ]


def _require(result: FileResult, remedy: str) -> None:
    if result.status != "ok":
        raise InputError(f"{result.path}: {result.detail}; {remedy}")
