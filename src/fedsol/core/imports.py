"""Import what a user names in a setting: `package.module:name` or `path/to/file.py:name`."""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from fedsol.errors import InputError


def import_object(reference: str, field: str) -> object:
    """Return the object that `reference` names; `field` is the setting it came from, for the error message.

    `reference` is `module:name` (a module that is installed or in the current directory) or `file.py:name`. The module
    can import others in its folder; the import path does not change.
    """
    module_name, separator, attribute = reference.rpartition(":")
    if not separator or not module_name or not attribute:
        raise InputError(f"{field}: must be 'module:name' or 'path/to/file.py:name' (got {reference!r})")
    if module_name.endswith(".py"):
        module = _import_file(Path(module_name), reference, field)
    else:
        module = _import_module(module_name, reference, field)
    return _attribute(module, attribute, reference, field)


@contextmanager
def _searching_first(folder: Path) -> Iterator[None]:
    """Look for modules in `folder` first inside the block."""
    before = list(sys.path)
    sys.path[:] = [str(folder), *before]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = before


def _import_module(name: str, reference: str, field: str) -> ModuleType:
    try:
        with _searching_first(Path.cwd()):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InputError(
                f"{field}: {reference!r}: no module {name!r}, neither installed nor in {Path.cwd()}"
            ) from error
        raise _import_failed(reference, field, error) from error
    except Exception as error:  # a user's module may raise anything while it is imported
        raise _import_failed(reference, field, error) from error


def _import_file(path: Path, reference: str, field: str) -> ModuleType:
    path = path.expanduser().resolve()
    if not path.is_file():
        raise InputError(f"{field}: {reference!r}: no such file: {path}")
    # One name per file: two references to a file share its module, and so its classes.
    name = f"fedsol_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{field}: {reference!r}: {path} cannot be imported as a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _searching_first(path.parent):
            spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, Exception):
            raise _import_failed(reference, field, error) from error
        raise
    return module


def _import_failed(reference: str, field: str, error: Exception) -> InputError:
    return InputError(f"{field}: {reference!r} could not be imported: {type(error).__name__}: {error}")


def _attribute(module: ModuleType, attribute: str, reference: str, field: str) -> object:
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            names = ", ".join(sorted(name for name in vars(module) if not name.startswith("_"))) or "nothing"
            where = getattr(module, "__file__", None) or module.__name__
            raise InputError(f"{field}: {reference!r}: {where} has no {attribute!r}; it has {names}")
        found = getattr(found, part)
    return found
