"""Trackers: adapters that send a run's metrics to a tool of the user's choice. One file each, imported when asked."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fedsol.config.tables import unknown_name
from fedsol.errors import InputError

if TYPE_CHECKING:
    from fedsol.trackers.base import Tracker

TRACKERS = {
    "tensorboard": "fedsol.trackers.tensorboard:TensorBoardTracker",
    "wandb": "fedsol.trackers.wandb:WandbTracker",
    "mlflow": "fedsol.trackers.mlflow:MLflowTracker",
}
"""By the name of the package each needs, which is also that of the extra that installs it."""


def check_tracker(name: str) -> None:
    """Raises `InputError` unless the tracker is known and its package installed."""
    if name not in TRACKERS:
        raise unknown_name("tracker", name, TRACKERS)
    if find_spec(name) is None:
        raise InputError(f"tracker: {name!r} needs a package that is not installed: pip install 'fedsol[{name}]'")


def make_tracker(name: str, directory: str | Path) -> "Tracker":
    """The tracker of this name for the run in `directory`: a callback for `train`."""
    check_tracker(name)
    module, _, attribute = TRACKERS[name].partition(":")
    tracker: type[Tracker] = getattr(import_module(module), attribute)
    return tracker(directory)
