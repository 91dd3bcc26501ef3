"""Fetch and verify the files of a dataset by name.

Files are kept in `root/<dataset>/`, under their publishers' names. Files put there by hand are as good as
fetched ones: both are verified before use. `FEDSOL_MIRROR` (see `fedsol.data.download`) replaces the
publishers' addresses.
"""

from pathlib import Path

from fedsol.data.catalog import find_spec
from fedsol.data.files import FileResult, inspect, prepare

__all__ = ["FileResult", "fetch", "verify"]


def fetch(name: str, root: Path | str) -> list[FileResult]:
    """Download what is missing of a dataset, verify and extract it; returns what is there, file by file."""
    spec = find_spec(name)
    prepare(spec, Path(root), may_download=True)
    return inspect(spec, Path(root), trust_marker=True)


def verify(name: str, root: Path | str) -> list[FileResult]:
    """What is there of a dataset, every file hashed anew; an empty list if it needs no files."""
    return inspect(find_spec(name), Path(root))
