"""Safe extraction of tar archives."""

import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from fedsol.errors import InputError


def extract(archive: Path, target: Path, unused: Collection[str] = ()) -> None:
    """Extract a tar archive so that its content is in the folder `target`, complete or not at all.

    A top-level folder named like `target` is taken for it, so no level is doubled. Entries of the target
    named in `unused` are left out. An archive with anything but plain files and folders below its own root
    is refused.
    """
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        try:
            _extract_into(archive, temporary, target.name, unused)
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            raise InputError(f"{archive}: cannot be extracted: {error}") from error
        temporary.chmod(0o755)  # mkdtemp closes its folders to others
        _move(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _extract_into(archive: Path, folder: Path, own_name: str, unused: Collection[str]) -> None:
    with tarfile.open(archive, "r:*") as content:
        for member in content:
            parts = _safe_parts(member, archive)
            parts = parts[1:] if parts[:1] == (own_name,) else parts
            if not parts or parts[0] in unused:
                continue
            path = folder.joinpath(*parts)
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            source = content.extractfile(member)
            if source is None:
                raise InputError(f"{archive}: {member.name!r} has no content")
            path.parent.mkdir(parents=True, exist_ok=True)
            with source, path.open("xb") as file:
                shutil.copyfileobj(source, file, 1 << 20)


def _safe_parts(member: tarfile.TarInfo, archive: Path) -> tuple[str, ...]:
    """The parts of a member's path; it must be a plain file or folder below the archive's root."""
    path = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()):
        raise InputError(f"{archive}: refused, {member.name!r} is neither a plain file nor a folder")
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or ":" in member.name:
        raise InputError(f"{archive}: refused, {member.name!r} would be written outside of its folder")
    return path.parts


def _move(content: Path, target: Path) -> None:
    try:
        content.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        # Another process was faster; what it extracted is checked like any other file.
