"""Run: the one class for a run, in memory or on disk."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast, get_args

from fedsol.config.experiment import Experiment, parse_toml
from fedsol.config.overrides import RENAMED, WITHOUT_OLD_NAME, flatten
from fedsol.config.tables import unknown_name
from fedsol.config.task import Measure, primary_of
from fedsol.core.files import read_json_object
from fedsol.core.messages import State
from fedsol.core.weights import Weights
from fedsol.data.catalog import load_dataset
from fedsol.data.description import DATA_FILE, DataDescription, describe_data, read_description
from fedsol.data.manifest import Manifest, load_manifest
from fedsol.errors import InputError
from fedsol.federation.trained import TrainedModel
from fedsol.runs.checkpoints import Checkpoint
from fedsol.runs.client_states import ClientStates
from fedsol.runs.directory import FROZEN, RunDirectory
from fedsol.runs.facts import hold_out_facts, model_facts
from fedsol.runs.rows import PRIVACY, Row
from fedsol.runs.selection import Selection, Stop

if TYPE_CHECKING:
    import pandas
    import torch

    from fedsol.inference.predictions import Predictions

Which = Literal["final", "best"]
"""The model after the last round, or after the best round by validation."""


class Run:
    """A finished or interrupted run: the result of `train`, or a run directory.

    Files of a directory are read when needed, each at most once. `toml`, `settings`, `rows` and `environment` do
    not import the user's code that an experiment may name; `experiment` does.
    """

    directory: Path | None
    stopped_by_callback: Stop | None = None
    """Where and why a callback ended the run; a run directory does not say so, as the run may be resumed."""

    def __init__(
        self,
        experiment: Experiment,
        rows: list[Row],
        weights: Weights | None = None,
        directory: Path | None = None,
        best_weights: Weights | None = None,
    ) -> None:
        self.directory = directory
        self.experiment = experiment
        self.rows = rows
        self.weights = weights or {}
        self.best_weights = best_weights or {}
        self.trained_rounds = len(rows)

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Open a run directory."""
        run = cls.__new__(cls)
        run.directory = Path(directory)
        run.files.check_exists()
        return run

    @property
    def path(self) -> Path:
        """The run directory, for a run that has one."""
        if self.directory is None:
            raise InputError("the run is in memory only; train it with a directory (out)")
        return self.directory

    @property
    def files(self) -> RunDirectory:
        """The files of a run that has a directory."""
        return RunDirectory(self.path)

    @cached_property
    def experiment(self) -> Experiment:
        """The resolved experiment."""
        return self.files.read_experiment()

    @cached_property
    def rows(self) -> list[Row]:
        """One row per finished round, as in metrics.jsonl."""
        return self.files.read_rows()

    @cached_property
    def weights(self) -> Weights:
        """The global weights after the last finished round; empty without a checkpoint."""
        return self.checkpoint.server.weights if self.checkpoint else {}

    @cached_property
    def trained_rounds(self) -> int:
        """The number of rounds that trained `weights`; `rows` may have more if the run was killed."""
        return self.checkpoint.round if self.checkpoint else 0

    @cached_property
    def best_weights(self) -> Weights:
        """The global weights after the best round by validation; empty without a validation set."""
        return self.files.checkpoints.best(number).server.weights if (number := self._best_trained_round) else {}

    @cached_property
    def client_states(self) -> dict[int, State]:
        """The clients' own states after the last finished round, by client; of a run in memory what they keep."""
        if self.checkpoint is None:
            return {}
        states = ClientStates(dict, self.files.checkpoints.client_folder)
        states.restore(self.checkpoint.clients)
        return states.all()

    def own_state(self, client: int) -> State:
        """Return a client's own state; empty if it never trained, or there are none."""
        return self.client_states.get(client, {})

    def check_model(self) -> None:
        """Raise `InputError` if there are no global weights yet."""
        if not self.weights:
            raise InputError(f"{self.path}: has no global model yet (no intact checkpoint in 'checkpoints')")

    @cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The newest valid checkpoint."""
        return self.files.checkpoints.newest()

    @cached_property
    def toml(self) -> str:
        """The experiment as TOML."""
        path = self.path / "experiment.toml" if self.directory else None
        return path.read_text(encoding="utf-8") if path and path.is_file() else self.experiment.to_toml()

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The experiment as it is written, with dotted keys by their present names and without validation."""
        written = flatten(parse_toml(self.toml, str(self.directory and self.directory / "experiment.toml")))
        return {**WITHOUT_OLD_NAME, **{RENAMED.get(key, key): value for key, value in written.items()}}

    @cached_property
    def environment(self) -> dict[str, Any]:
        """The run's software and machine (environment.json); empty if not saved."""
        path = self.directory and self.directory / "environment.json"
        return read_json_object(path) if path and path.is_file() else {}

    @cached_property
    def frozen_sha256(self) -> str:
        """The hash of the model's frozen weights, which are not saved; empty if there are none, or it is not known."""
        return str(self.environment.get(FROZEN, ""))

    @cached_property
    def partition(self) -> Manifest | None:
        """Which client has which samples (partition.json); None if not saved."""
        path = self.directory and self.directory / "partition.json"
        return load_manifest(path) if path and path.is_file() else None

    @property
    def seed(self) -> int:
        """The seed of all randomness in the run."""
        return int(self.settings.get("seed", 0))

    @property
    def metrics(self) -> "pandas.DataFrame":
        """The rows as a table: a column for each key of metrics.jsonl, indexed by round."""
        import pandas

        table = pandas.DataFrame(self.rows)
        return table.set_index(table["round"].to_numpy()) if self.rows else table

    @property
    def primary(self) -> Measure:
        """The metric that tables, plots and reports show: the first of `task.metrics`."""
        return primary_of(self.settings)

    @property
    def results(self) -> list[tuple[int, float]]:
        """(round, primary metric on the test set) of every evaluated round."""
        key = f"test_{self.primary.key}"
        return [(row["round"], value) for row in self.rows if (value := self.value(row, key)) is not None]

    @staticmethod
    def value(row: Row, key: str) -> float | None:
        """Return a number of a row whose key depends on the task; None if it is missing."""
        return cast(dict[str, float | None], row).get(key)

    @property
    def final_result(self) -> float | None:
        """The primary metric on the test set in the last evaluated round."""
        return self.results[-1][1] if self.results else None

    @property
    def final_held_out(self) -> float | None:
        """The primary metric on the clients' hold-out sets in the last round that has it."""
        values = (self.value(row, f"held_out_{self.primary.key}") for row in reversed(self.rows))
        return next((value for value in values if value is not None), None)

    @property
    def final_words(self) -> str:
        """The final result in words: on the test set or, if no model is tested there, on the clients' hold-out sets."""
        title, text = self.primary.title, self.primary.text
        if self.results or self.final_held_out is None:
            return f"final {title} {text(self.final_result)}"
        return f"final held-out {title} {text(self.final_held_out)}"

    @property
    def best_result(self) -> float | None:
        """The primary metric on the test set in the best round: without a validation set, the best of any round."""
        return (
            None if self.best_round is None else self.value(self.rows[self.best_round - 1], f"test_{self.primary.key}")
        )

    @property
    def accuracies(self) -> list[tuple[int, float]]:
        """(round, test accuracy between 0 and 1) of every evaluated round."""
        return [(row["round"], accuracy) for row in self.rows if (accuracy := row["test_accuracy"]) is not None]

    @property
    def final_accuracy(self) -> float | None:
        """Test accuracy of the last evaluated round."""
        return self.accuracies[-1][1] if self.accuracies else None

    @property
    def selection(self) -> Selection:
        """How the best round is chosen: on the validation set or, without one, on the test set."""
        return Selection.of(self.settings)

    @property
    def best_round(self) -> int | None:
        """The best round by validation; without a validation set, the one with the highest test accuracy."""
        return self.selection.best_round(self.rows)

    @property
    def _best_trained_round(self) -> int | None:
        """The best round by validation among those that the newest checkpoint covers."""
        saved = self.rows[: self.trained_rounds]
        return self.selection.best_round(saved) if self.selection.has_validation else None

    @property
    def best_accuracy(self) -> float | None:
        """Test accuracy of the best round: without a validation set, the highest of any round."""
        return None if self.best_round is None else self.rows[self.best_round - 1]["test_accuracy"]

    @property
    def best_validation(self) -> float | None:
        """The result of the best round on the validation set; None without one."""
        chosen = self.best_round if self.selection.has_validation else None
        return None if chosen is None else dict(self.selection.results(self.rows))[chosen]

    @property
    def stopped(self) -> Stop | None:
        """Where and why the run stopped before its last round; None if it did not."""
        return self.stopped_by_callback or self.selection.find_stop(self.rows)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to train: all rounds are done, or the run stopped before."""
        return self.stopped is not None or len(self.rows) == self.settings.get("rounds")

    def summary(self) -> dict[str, Any]:
        """Return the content of summary.json."""
        found = {
            "algorithm": self.experiment.algorithm["name"],
            "seed": self.experiment.seed,
            "rounds": len(self.rows),
            f"final_{self.primary.key}": self.final_result,
            f"best_{self.primary.key}": self.best_result,
        }
        if self.selection.has_validation:
            found |= {"best_round": self.best_round, "best_validation": self.best_validation}
        if self.rows and "epsilon" in self.rows[-1]:
            found |= {key: self.value(self.rows[-1], key) for key in PRIVACY}
        if self.stopped:
            found["stopped"] = f"after round {self.stopped.round}: {self.stopped.reason}"
        return found

    @cached_property
    def description(self) -> DataDescription:
        """What the model must know about its data (data.json); earlier versions did not save it: from the dataset."""
        path = self.directory and self.directory / DATA_FILE
        if path and path.is_file():
            return read_description(path)
        settings = self.experiment.data
        return describe_data(load_dataset(settings, self.experiment.task.kind), settings)

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the classes and of the clients; none in directories of earlier versions."""
        path = self.directory and self.directory / DATA_FILE
        found = read_description(path) if path and path.is_file() else None
        return (found.class_names, found.client_names) if found else ((), ())

    def trained(self, which: Which = "final") -> TrainedModel:
        """Return the model as a value: weights, experiment, description of the data, and the facts of its card."""
        weights = self.weights_of(which)
        facts = model_facts(self, self.rounds_of(which), self.description)
        if which == "best":
            facts["checkpoint"] = "the best round by validation"
        return TrainedModel(self.experiment, weights, self.description, facts, self.frozen_sha256)

    def weights_of(self, which: Which) -> Weights:
        """Return the global weights after the last round, or after the best one by validation."""
        if which not in get_args(Which):
            raise unknown_name("which", which, get_args(Which))
        if which == "best" and not self.selection.has_validation:
            raise InputError(
                "which: 'best' is not allowed: the run has no validation set to choose it on; train with "
                "data.validation, such as 0.1, or use 'final'"
            )
        if which == "best" and not self.best_weights:
            raise InputError("which: 'best' is not allowed: no round has a result on the validation set; use 'final'")
        self.check_model()
        return self.weights if which == "final" else self.best_weights

    def rounds_of(self, which: Which) -> int:
        """Return the number of rounds that trained the weights of a model."""
        return self.trained_rounds if which == "final" else self._best_trained_round or 0

    def model(self, which: Which = "final", merged: bool = False) -> "torch.nn.Module":
        """Return the model as a plain torch module in evaluation mode, on the CPU, without anything of training in it.

        It is a new module of the class that was trained (your own, for your own model). Its inputs are normalized, as
        in training; `predict` and exported files take inputs as they are. `merged` adds low-rank adapters to the layers
        that they adapt, those of peft too.
        """
        trained = self.trained(which)
        module = (trained.merged() if merged else trained).module()
        unload = getattr(module, "merge_and_unload", None)  # peft's
        return unload() if merged and unload else module

    def predict(self, inputs: Any, which: Which = "final") -> "Predictions":
        """Predict samples: an array, images, a folder, an .npz file … as the training data may be."""
        from fedsol.inference.predictions import predict

        return predict(self.trained(which), inputs)

    def evaluate(self, data: Any = None, which: Which = "final") -> dict[str, Any]:
        """Return the metrics on labeled data: a folder, an .npz file, `(inputs, labels)` …; default: the test set."""
        from fedsol.inference.evaluation import evaluate_on

        return evaluate_on(self.trained(which), data)

    def export(self, path: str | Path, which: Which = "final") -> list[Path]:
        """Write the model as .onnx, .pt2 or .safetensors, and a model card beside it; return both paths."""
        from fedsol.inference.export import export

        trained = self.trained(which)
        facts = {**trained.facts, **hold_out_facts(self, trained.weights, trained.facts.get("by_client", ()))}
        return export(replace(trained, facts=facts), Path(path))

    def plot(self, path: str | Path) -> Path:
        """Write the learning curve as a picture (PNG or PDF, by the file's suffix)."""
        from fedsol.plots.curves import draw_curves, result_curves

        curves, shown = result_curves([(self.experiment.algorithm["name"], [self.rows])], self.primary)
        return draw_curves(curves, path, self.experiment.data.name, shown, self.primary)

    def __repr__(self) -> str:
        values = {**self.summary(), "directory": str(self.directory) if self.directory else None}
        return f"Run({', '.join(f'{key}={value!r}' for key, value in values.items())})"

    def _repr_html_(self) -> str:
        """Return a table and the learning curve, which Jupyter shows for a run."""
        from fedsol.runs.notebook import run_html

        return run_html(self)
