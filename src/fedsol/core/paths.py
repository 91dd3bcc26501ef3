"""Paths that a user names."""

from pathlib import Path

from fedsol.errors import InputError


def user_path(text: str | Path, field: str = "") -> Path:
    """Return the path, with `~` expanded; raise `InputError` for one that no system call accepts.

    That is one with a name of thousands of letters or a null byte, the home of an unknown user, or one that may not be
    read. A path that does not exist is returned.
    """
    try:
        path = Path(text).expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, RuntimeError, ValueError) as error:
        where = f"{field}: " if field else ""
        short = f"{str(text)[:60]}…" if len(str(text)) > 60 else str(text)
        raise InputError(
            f"{where}{short!r} is not a valid path: {getattr(error, 'strerror', None) or error}"
        ) from error
    return path
