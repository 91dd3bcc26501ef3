"""The adapters: TensorBoard, Weights & Biases, MLflow. Each imports its package when a run starts."""

import os
import time
from collections.abc import Mapping
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.config.overrides import flatten
from fedsol.trackers.base import Tracker

PARAMETERS_PER_REQUEST = 100


class TensorBoardTracker(Tracker):
    """Event files in `tensorboard/` of the run directory, read with `tensorboard --logdir`."""

    name = "tensorboard"
    _writer: Any = None

    def open(self, experiment: Experiment, identity: str | None, rounds: int) -> tuple[str, int]:
        from torch.utils.tensorboard import SummaryWriter

        # purge_step makes readers drop the rounds of a killed run that are trained again.
        resumed = {"purge_step": rounds + 1} if identity else {}
        self._writer = SummaryWriter(str(self.directory / self.name), **resumed)
        if not identity:
            self._writer.add_text("experiment", f"```toml\n{experiment.to_toml()}\n```", 0)
        return self.name, rounds if identity else 0

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        for key, value in metrics.items():
            self._writer.add_scalar(key, value, step)
        self._writer.flush()

    def close(self, complete: bool) -> None:
        self._writer.close()


class WandbTracker(Tracker):
    """A run in the project `WANDB_PROJECT` (default `fedsol`), after `wandb login` or with `WANDB_MODE=offline`."""

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
            # Offline the service cannot be asked: `wandb sync --append` joins parts with the same id.
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


class MLflowTracker(Tracker):
    """A run in the experiment `MLFLOW_EXPERIMENT_NAME` (default `fedsol`).

    The store is `MLFLOW_TRACKING_URI`; without it, files in `mlruns` next to the run directory.
    """

    name = "mlflow"
    _client: Any = None
    _run = ""

    def open(self, experiment: Experiment, identity: str | None, rounds: int) -> tuple[str, int]:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        store = os.environ.get("MLFLOW_TRACKING_URI")
        if not store:
            # MLflow recommends a database; its file store works without a server, but must be allowed explicitly.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            store = (self.directory.resolve().parent / "mlruns").as_uri()
        self._client = MlflowClient(store)
        if identity:
            self._run = identity
            self._client.update_run(identity, status="RUNNING")
            history = self._client.get_metric_history(identity, "seconds")
            return identity, max((metric.step for metric in history), default=0)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedsol")
        found = self._client.get_experiment_by_name(name)
        experiment_id = str(found.experiment_id if found else self._client.create_experiment(name))
        self._run = self._client.create_run(experiment_id, run_name=self.directory.name).info.run_id
        parameters = [Param(key, str(value)) for key, value in flatten(experiment.model_dump()).items()]
        for start in range(0, len(parameters), PARAMETERS_PER_REQUEST):
            self._client.log_batch(self._run, params=parameters[start : start + PARAMETERS_PER_REQUEST])
        return self._run, 0

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._run, [Metric(key, value, now, step) for key, value in metrics.items()])

    def close(self, complete: bool) -> None:
        self._client.set_terminated(self._run, "FINISHED" if complete else "KILLED")
