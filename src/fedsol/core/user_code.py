"""Errors in a user's own code: where in which file."""

import os
import sysconfig
import traceback
from pathlib import Path

PACKAGE = f"{Path(__file__).resolve().parents[1]}{os.sep}"
LIBRARIES = tuple(
    f"{Path(sysconfig.get_path(name)).resolve()}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def user_place(error: BaseException) -> str | None:
    """Return `file.py, line 12, in name`: the last line of a user's code that fedsol called; None if there is none."""
    if isinstance(error, SyntaxError) and error.filename and _is_users(error.filename):
        return f"{error.filename}, line {error.lineno}"
    place, is_called = None, False
    for frame in traceback.extract_tb(error.__traceback__):
        is_called = is_called or frame.filename.startswith(PACKAGE)
        if is_called and _is_users(frame.filename):
            place = f"{frame.filename}, line {frame.lineno}, in {frame.name}"
    return place


def describe_user_error(error: BaseException) -> str:
    """Return the class and the text of an error, and where it is in the user's own code, on one line each."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    place = user_place(error)
    return f"{text} ({place})" if place else text


def _is_users(file: str) -> bool:
    """Return whether a file is neither of fedsol nor of an installed library."""
    if file.startswith("<"):
        return file.startswith("<ipython")
    path = str(Path(file).resolve())
    return not path.startswith((PACKAGE, *LIBRARIES))
