"""Trackers: adapters that send a run's metrics to TensorBoard, Weights & Biases or MLflow."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fedsol.config.tables import unknown_name
from fedsol.errors import InputError

if TYPE_CHECKING:
    from fedsol.trackers.base import Tracker

TRACKERS = {"tensorboard": "TensorBoardTracker", "wandb": "WandbTracker", "mlflow": "MLflowTracker"}
"""Adapters by the name of the package that each requires, which is also the name of fedsol's extra."""


def check_tracker(name: str, field: str = "tracker") -> None:
    """Raise `InputError`, which names the field, unless the tracker is known and its package is installed."""
    if name not in TRACKERS:
        raise unknown_name(field, name, TRACKERS)
    if find_spec(name) is None:
        raise InputError(f"{field}: {name!r} is not installed; run: pip install 'fedsol[{name}]'")


def make_tracker(name: str, directory: str | Path) -> "Tracker":
    """Return the tracker of this name for the run in `directory`: a callback for `train`."""
    from fedsol.trackers import adapters

    check_tracker(name)
    tracker: type[Tracker] = getattr(adapters, TRACKERS[name])
    return tracker(directory)
