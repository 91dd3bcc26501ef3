"""fedsol with short trainings, for code that is written for readers: one round of one epoch, in one process."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedsol import api
from fedsol.__main__ import main as command

ROUND = {"rounds": 1}
QUICK = {**ROUND, "client.epochs": 1, "engine.kind": "local"}
SHORT: Mapping[tuple[str, ...], Mapping[str, Any]] = {("run",): QUICK, ("compare",): QUICK, ("flower", "app"): ROUND}
"""What is set by commands that train."""


def options(arguments: Sequence[str]) -> list[str]:
    """Return the options that make a command short."""
    changes = next((SHORT[key] for key in SHORT if tuple(arguments[: len(key)]) == key), {})
    return [f"--set={key}={value}" for key, value in changes.items()]


def experiment_of() -> Callable[..., Any]:
    """Return the function that reads the experiment of every training in Python, made short."""
    complete = api.experiment_of

    def quickly(*arguments: Any) -> tuple[Any, Any]:
        experiment, values = complete(*arguments)
        return experiment.override(QUICK), values

    return quickly


def main() -> None:
    """Run the command line."""
    sys.argv += options(sys.argv[1:])
    command()
