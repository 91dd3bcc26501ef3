"""MLflow: to the server or store of `MLFLOW_TRACKING_URI`, otherwise to files in `mlruns` beside the run."""

import os
import time
from collections.abc import Mapping
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.config.overrides import flatten
from fedsol.trackers.base import Tracker

PARAMETERS_AT_ONCE = 100
EXPERIMENT = "fedsol"


class MLflowTracker(Tracker):
    """One MLflow run per fedsol run, in the experiment `fedsol` unless `MLFLOW_EXPERIMENT_NAME` names another."""

    name = "mlflow"
    _client: Any = None
    _run = ""

    def open(self, experiment: Experiment, identity: str | None, rounds: int) -> tuple[str, int]:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        store = os.environ.get("MLFLOW_TRACKING_URI")
        if not store:
            # MLflow advises a database now; its file store needs no further package and no server, but this consent.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            store = (self.directory.resolve().parent / "mlruns").as_uri()
        self._client = MlflowClient(store)
        if identity:
            self._run = identity
            self._client.update_run(identity, status="RUNNING")
            return identity, max(
                (metric.step for metric in self._client.get_metric_history(identity, "seconds")), default=0
            )
        created = self._client.create_run(self._experiment(), run_name=self.directory.name)
        self._run = created.info.run_id
        parameters = [Param(key, str(value)) for key, value in flatten(experiment.model_dump()).items()]
        for start in range(0, len(parameters), PARAMETERS_AT_ONCE):
            self._client.log_batch(self._run, params=parameters[start : start + PARAMETERS_AT_ONCE])
        return self._run, 0

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._run, [Metric(key, value, now, step) for key, value in metrics.items()])

    def close(self, complete: bool) -> None:
        self._client.set_terminated(self._run, "FINISHED" if complete else "KILLED")

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found else self._client.create_experiment(name))
