"""Import what a user names in a setting: `package.module:name` or `path/to/file.py:name`."""

import hashlib
import importlib
import importlib.util
import operator
import sys
from pathlib import Path
from types import ModuleType

from fedsol.core.paths import user_path
from fedsol.core.user_code import describe_user_error
from fedsol.errors import InputError


def import_object(reference: str, field: str) -> object:
    """Return the object that `reference` names; `field` is the setting it came from, for the error message.

    `reference` is `module:name` (a module that is installed or in the current directory) or `file.py:name`. The module
    can import others in its folder; the import path does not change.
    """
    name, _, attribute = reference.rpartition(":")
    if not name or not attribute:
        raise InputError(f"{field}: must be 'module:name' or 'path/to/file.py:name' (got {reference!r})")
    where = f"{field}: {reference!r}"
    file = user_path(name, field).resolve() if name.endswith(".py") else None
    if file and not file.is_file():
        raise InputError(f"{where}: no such file: {file}")
    search_path = list(sys.path)
    sys.path[:] = [str(file.parent if file else Path.cwd()), *search_path]
    importlib.invalidate_caches()
    try:
        module = _import_file(file) if file else importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a user's module may raise anything, and a script may end by sys.exit
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and not file and f"{name}.".startswith(f"{missing}."):
            raise InputError(f"{where}: no module {name!r}, neither installed nor in {Path.cwd()}") from error
        raise InputError(f"{where} could not be imported: {describe_user_error(error)}") from error
    finally:
        sys.path[:] = search_path
    try:
        return operator.attrgetter(attribute)(module)
    except AttributeError as error:
        names = ", ".join(sorted(name for name in vars(module) if not name.startswith("_"))) or "nothing"
        source = getattr(module, "__file__", None) or module.__name__
        raise InputError(f"{where}: {source} has no {attribute!r}; it has {names}") from error


def _import_file(path: Path) -> ModuleType:
    # One name per file: two references to a file share its module, and so its classes.
    name = f"fedsol_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader  # true for every file that ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
