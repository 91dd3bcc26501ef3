"""fedsol: federated learning for data that differs from client to client."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from fedsol.algorithms import gradients, register
    from fedsol.algorithms.base import Algorithm
    from fedsol.algorithms.gradients import perturbation
    from fedsol.config import fields
    from fedsol.config.experiment import Experiment
    from fedsol.core import weights
    from fedsol.data.types import Augmentation, Dataset, Split
    from fedsol.errors import FedsolError, InputError, RunError
    from fedsol.personalization.loop import personalize
    from fedsol.runs.run import Run
    from fedsol.training.loop import Callback, RoundResult, train

_HOMES = {
    "Algorithm": "fedsol.algorithms.base",
    "Augmentation": "fedsol.data.types",
    "Callback": "fedsol.training.loop",
    "Dataset": "fedsol.data.types",
    "Experiment": "fedsol.config.experiment",
    "FedsolError": "fedsol.errors",
    "InputError": "fedsol.errors",
    "RoundResult": "fedsol.training.loop",
    "Run": "fedsol.runs.run",
    "RunError": "fedsol.errors",
    "Split": "fedsol.data.types",
    "personalize": "fedsol.personalization.loop",
    "fields": "fedsol.config.fields",
    "gradients": "fedsol.algorithms.gradients",
    "perturbation": "fedsol.algorithms.gradients",
    "register": "fedsol.algorithms",
    "train": "fedsol.training.loop",
    "weights": "fedsol.core.weights",
}

__all__ = [
    "Algorithm",
    "Augmentation",
    "Callback",
    "Dataset",
    "Experiment",
    "FedsolError",
    "InputError",
    "RoundResult",
    "Run",
    "RunError",
    "Split",
    "fields",
    "gradients",
    "personalize",
    "perturbation",
    "register",
    "train",
    "weights",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `fedsol --help` need not wait for torch."""
    if name == "__version__":
        return import_module("importlib.metadata").version("fedsol")
    if name not in _HOMES:
        raise AttributeError(f"module 'fedsol' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    return home if home.__name__.endswith(f".{name}") else getattr(home, name)
