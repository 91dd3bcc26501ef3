"""fedsol: federated learning for data that differs from client to client."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from fedsol.algorithms import gradients, register
    from fedsol.algorithms.base import Algorithm
    from fedsol.algorithms.gradients import perturbation
    from fedsol.api import Comparison, compare, load, plot, report, sweep, train
    from fedsol.config import fields
    from fedsol.config.experiment import Experiment
    from fedsol.core import weights
    from fedsol.data.types import Augmentation, Dataset, Split
    from fedsol.errors import FedsolError, InputError, RunError
    from fedsol.personalization.loop import personalize
    from fedsol.runs.run import Run
    from fedsol.training.callbacks import Callback, RoundResult, StopTraining

_HOMES = {
    "Algorithm": "fedsol.algorithms.base",
    "Augmentation": "fedsol.data.types",
    "Callback": "fedsol.training.callbacks",
    "Comparison": "fedsol.api",
    "Dataset": "fedsol.data.types",
    "Experiment": "fedsol.config.experiment",
    "FedsolError": "fedsol.errors",
    "InputError": "fedsol.errors",
    "RoundResult": "fedsol.training.callbacks",
    "Run": "fedsol.runs.run",
    "RunError": "fedsol.errors",
    "Split": "fedsol.data.types",
    "StopTraining": "fedsol.training.callbacks",
    "compare": "fedsol.api",
    "personalize": "fedsol.personalization.loop",
    "fields": "fedsol.config.fields",
    "gradients": "fedsol.algorithms.gradients",
    "load": "fedsol.api",
    "perturbation": "fedsol.algorithms.gradients",
    "plot": "fedsol.api",
    "register": "fedsol.algorithms",
    "report": "fedsol.api",
    "sweep": "fedsol.api",
    "train": "fedsol.api",
    "weights": "fedsol.core.weights",
}

__all__ = [
    "Algorithm",
    "Augmentation",
    "Callback",
    "Comparison",
    "Dataset",
    "Experiment",
    "FedsolError",
    "InputError",
    "RoundResult",
    "Run",
    "RunError",
    "Split",
    "StopTraining",
    "compare",
    "fields",
    "gradients",
    "load",
    "personalize",
    "perturbation",
    "plot",
    "register",
    "report",
    "sweep",
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


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
