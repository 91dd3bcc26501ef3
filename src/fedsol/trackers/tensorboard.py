"""TensorBoard: event files in the run directory, read with `tensorboard --logdir`."""

from collections.abc import Mapping
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.trackers.base import Tracker

FOLDER = "tensorboard"


class TensorBoardTracker(Tracker):
    """Writes events to `tensorboard/` of the run directory."""

    name = "tensorboard"
    _writer: Any = None

    def open(self, experiment: Experiment, identity: str | None, rounds: int) -> tuple[str, int]:
        from torch.utils.tensorboard import SummaryWriter

        # purge_step has readers forget the rounds of a killed run that are trained once more.
        again = {"purge_step": rounds + 1} if identity else {}
        self._writer = SummaryWriter(str(self.directory / FOLDER), **again)
        if not identity:
            self._writer.add_text("experiment", f"```toml\n{experiment.to_toml()}\n```", 0)
        return FOLDER, rounds if identity else 0

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        for key, value in metrics.items():
            self._writer.add_scalar(key, value, step)
        self._writer.flush()

    def close(self, complete: bool) -> None:
        self._writer.close()
