"""Weights & Biases: online after `wandb login`, or on disk alone with `WANDB_MODE=offline`."""

import os
from collections.abc import Mapping
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.trackers.base import Tracker


class WandbTracker(Tracker):
    """One W&B run per fedsol run, in the project `fedsol` unless `WANDB_PROJECT` names another."""

    name = "wandb"
    _run: Any = None

    def open(self, experiment: Experiment, identity: str | None, rounds: int) -> tuple[str, int]:
        import wandb

        offline = os.environ.get("WANDB_MODE", "online") != "online"
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedsol"),
            name=self.directory.name,
            dir=str(self.directory),
            config=experiment.model_dump(),
            id=identity,
            # Offline the service cannot be asked: parts with one id become one run by `wandb sync --append`.
            resume="allow" if identity and not offline else None,
            settings=wandb.Settings(silent=True, console="off"),
        )
        if identity and not offline:
            return str(self._run.id), int(self._run.starting_step)
        return str(self._run.id), rounds if identity else 0

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self, complete: bool) -> None:
        self._run.finish(exit_code=0 if complete else 1)
