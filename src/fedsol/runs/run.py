"""Run: the one class for a run, in memory or on disk."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedsol.config.experiment import Experiment, parse_toml
from fedsol.config.overrides import flatten
from fedsol.core.files import read_json_object
from fedsol.core.weights import Weights
from fedsol.data.manifest import Manifest, load_manifest
from fedsol.errors import InputError
from fedsol.runs.checkpoints import Checkpoint
from fedsol.runs.directory import RunDirectory
from fedsol.runs.rows import Row

if TYPE_CHECKING:
    import pandas


class Run:
    """A finished or interrupted run: the result of `train`, or a run directory.

    Files of a directory are read when needed, each at most once. `toml`, `settings`, `rows` and `environment` do
    not import the user's code that an experiment may name; `experiment` does.
    """

    directory: Path | None

    def __init__(
        self, experiment: Experiment, rows: list[Row], weights: Weights | None = None, directory: Path | None = None
    ) -> None:
        self.directory = directory
        self.experiment = experiment
        self.rows = rows
        self.weights = weights or {}
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
        """The experiment as it is written, with dotted keys and without validation."""
        return flatten(parse_toml(self.toml, str(self.directory and self.directory / "experiment.toml")))

    @cached_property
    def environment(self) -> dict[str, Any]:
        """The run's software and machine (environment.json); empty if not saved."""
        path = self.directory and self.directory / "environment.json"
        return read_json_object(path) if path and path.is_file() else {}

    @cached_property
    def partition(self) -> Manifest | None:
        """Which client has which samples (partition.json); None if not saved."""
        path = self.directory and self.directory / "partition.json"
        return load_manifest(path) if path and path.is_file() else None

    @property
    def seed(self) -> int:
        """The seed of everything random in the run."""
        return int(self.settings.get("seed", 0))

    @property
    def metrics(self) -> "pandas.DataFrame":
        """The rows as a table: a column for each key of metrics.jsonl, indexed by round."""
        import pandas

        table = pandas.DataFrame(self.rows)
        return table.set_index(table["round"].to_numpy()) if self.rows else table

    @property
    def accuracies(self) -> list[tuple[int, float]]:
        """(round, test accuracy between 0 and 1) of every evaluated round."""
        return [(row["round"], accuracy) for row in self.rows if (accuracy := row["test_accuracy"]) is not None]

    @property
    def final_accuracy(self) -> float | None:
        """Test accuracy of the last evaluated round."""
        return self.accuracies[-1][1] if self.accuracies else None

    @property
    def best_accuracy(self) -> float | None:
        """Highest test accuracy of any round."""
        return max((accuracy for _, accuracy in self.accuracies), default=None)

    def summary(self) -> dict[str, Any]:
        """Return the content of summary.json."""
        return {
            "algorithm": self.experiment.algorithm["name"],
            "seed": self.experiment.seed,
            "rounds": len(self.rows),
            "final_accuracy": self.final_accuracy,
            "best_accuracy": self.best_accuracy,
        }

    def plot(self, path: str | Path) -> Path:
        """Write the learning curve as a picture (PNG or PDF, by the file's suffix)."""
        from fedsol.plots.curves import accuracy_curves, draw_curves

        curves, shown = accuracy_curves([(self.experiment.algorithm["name"], [self.rows])])
        return draw_curves(curves, path, title=self.experiment.data.name, ylabel=shown)

    def __repr__(self) -> str:
        values = {**self.summary(), "directory": str(self.directory) if self.directory else None}
        return f"Run({', '.join(f'{key}={value!r}' for key, value in values.items())})"

    def _repr_html_(self) -> str:
        """Return a table and the learning curve, which Jupyter shows for a run."""
        from fedsol.runs.notebook import run_html

        return run_html(self)
