"""Run and RunDirectory: what training leaves behind, in memory and on disk."""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import platform
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedsol.config.experiment import PRIVATE, Experiment, differing_keys
from fedsol.core.files import disk_errors_named, sha256, write_atomically
from fedsol.core.weights import Weights
from fedsol.data.manifest import label_counts, load_manifest, partition_hash, save_manifest
from fedsol.data.types import Dataset
from fedsol.errors import InputError, RunError
from fedsol.federation.federation import Federation
from fedsol.runs.checkpoints import Checkpoints

if TYPE_CHECKING:
    import pandas

log = logging.getLogger(__name__)

Row = dict[str, Any]
HASHED_INPUTS = 1000
RUN_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Run:
    """A finished (or interrupted) run."""

    experiment: Experiment
    rows: list[Row]
    """One row per finished round, as in metrics.jsonl."""
    weights: Weights = field(repr=False, default_factory=dict)
    """The global weights after the last finished round."""
    directory: Path | None = None

    @property
    def metrics(self) -> "pandas.DataFrame":
        """The rows as a table: a column for each key of metrics.jsonl, indexed by round."""
        import pandas

        table = pandas.DataFrame(self.rows)
        return table.set_index(table["round"].to_numpy()) if self.rows else table

    @property
    def accuracies(self) -> list[tuple[int, float]]:
        """(round, test accuracy between 0 and 1) of every evaluated round."""
        return [(row["round"], row["test_accuracy"]) for row in self.rows if row["test_accuracy"] is not None]

    @property
    def final_accuracy(self) -> float | None:
        """Test accuracy of the last evaluated round."""
        return self.accuracies[-1][1] if self.accuracies else None

    @property
    def best_accuracy(self) -> float | None:
        """Highest test accuracy of any round."""
        return max((accuracy for _, accuracy in self.accuracies), default=None)

    def summary(self) -> dict[str, Any]:
        """What summary.json holds."""
        return {
            "algorithm": self.experiment.algorithm["name"],
            "seed": self.experiment.seed,
            "rounds": len(self.rows),
            "final_accuracy": self.final_accuracy,
            "best_accuracy": self.best_accuracy,
        }

    def plot(self, path: str | Path) -> Path:
        """Writes the learning curve as a picture (PNG or PDF, by the file's suffix)."""
        from fedsol.plots.curves import accuracy_curves, draw_curves

        curves, shown = accuracy_curves([(self.experiment.algorithm["name"], [self.rows])])
        return draw_curves(curves, path, title=self.experiment.data.name, ylabel=shown)

    def _repr_html_(self) -> str:
        """A table and the learning curve, which Jupyter shows for a run."""
        from fedsol.plots.notebook import run_html

        return run_html(self)

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Reads a run directory."""
        folder = RunDirectory(Path(directory))
        experiment = folder.read_experiment()
        checkpoint = folder.checkpoints.newest()
        weights = checkpoint.server.weights if checkpoint else {}
        return cls(experiment, folder.read_rows(), weights, folder.path)


class RunDirectory:
    """The files of one run. Every file is replaced as a whole; rows of metrics are appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints")
        self._metrics = path / "metrics.jsonl"

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / "experiment.toml").is_file()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps a second process out; the lock goes when this process does, however it ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / "run.lock").open("a+")
        except OSError as error:
            raise InputError(f"{self.path}: cannot be used as a run directory: {error.strerror or error}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                owner = file.read().strip() or "unknown"
                raise InputError(f"{self.path}: process {owner} is running this run already") from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def begin(self, federation: Federation) -> None:
        """Starts a new run. The experiment is written last: where it is, everything else is."""
        experiment = federation.experiment
        if self.checkpoints.exist() or (self._metrics.is_file() and self._metrics.stat().st_size):
            raise InputError(f"{self.path}: holds parts of a run without its experiment.toml; choose another directory")
        with disk_errors_named(self.path):
            self.checkpoints.folder.mkdir(parents=True, exist_ok=True)
            partition = [indices.numpy() for indices in federation.partition]
            dataset = federation.dataset
            save_manifest(
                self.path / "partition.json",
                partition,
                dataset=experiment.data.name,
                samples=len(dataset.train),
                settings=experiment.data.partition.model_dump(),
                seed=experiment.seed,
                class_counts=label_counts(dataset.train.labels.numpy(), partition, dataset.classes),
            )
            identity = {"id": uuid.uuid4().hex, "data_sha256": data_hash(dataset)}
            surroundings = {**environment(), **identity}
            write_atomically(self.path / "environment.json", json.dumps(surroundings, indent=2) + "\n")
            write_atomically(self._metrics, b"")
            write_atomically(self.path / "experiment.toml", experiment.to_toml())

    def check_same_run(self, federation: Federation) -> None:
        """Refuses to go on with another experiment (but for more rounds), other data or another partition."""
        begun = self.read_experiment()
        differences = differing_keys(begun, federation.experiment)
        if differences == ["rounds"]:
            self._check_longer(begun, federation.experiment)
        elif differences:
            raise InputError(f"{self.path}: the run began with other values of {', '.join(differences)}")
        if self._read_environment().get("data_sha256") != data_hash(federation.dataset):
            raise InputError(
                f"{self.path}: the run began with other data than {federation.experiment.data.name} is now"
            )
        if federation.experiment.data.name == PRIVATE:
            return  # who has what is known to the nodes alone
        began_with = load_manifest(self.path / "partition.json").sha256
        if began_with != partition_hash([indices.numpy() for indices in federation.partition]):
            raise InputError(f"{self.path}: the run began with another partition of the data (sha256 {began_with})")

    def lengthen(self, experiment: Experiment) -> None:
        """Gives the run as many rounds as the experiment has, if these are others, and notes by what."""
        begun = self.read_experiment()
        if begun.rounds == experiment.rounds:
            return
        with disk_errors_named(self.path):
            self._note("lengthened", {"from": begun.rounds, "to": experiment.rounds}, environment())
            longer = begun.override({"rounds": experiment.rounds})
            write_atomically(self.path / "experiment.toml", longer.to_toml())

    def note_software(self, rounds_done: int) -> None:
        """Warns and notes it if the rounds to come are made by other versions than those done."""
        known = self._read_environment()
        now = environment()
        before = software({**known, **known.get("went_on", [{}])[-1]})
        changed = {name: value for name, value in software(now).items() if value != before.get(name)}
        if not rounds_done or not changed:
            return
        words = ", ".join(f"{name} {before.get(name) or 'unknown'} (now {value})" for name, value in changed.items())
        says = "%s: rounds 1 to %d were made with %s; the end need not be bitwise what it would have been"
        log.warning(says, self.path, rounds_done, words)
        with disk_errors_named(self.path):
            self._note("went_on", {"after": rounds_done}, now)

    def _note(self, key: str, note: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """Adds to a list in environment.json what happened to the run, and by what."""
        kept = ("command", "started", "python", "packages", "commit", "commit_modified")
        known = self._read_environment()
        notes = [*known.get(key, []), {**note, **{name: now[name] for name in kept if name in now}}]
        write_atomically(self.path / "environment.json", json.dumps({**known, key: notes}, indent=2) + "\n")

    def _check_longer(self, begun: Experiment, asked: Experiment) -> None:
        """Refuses fewer rounds, and more where those done would have been others or were all that was agreed on."""
        if begun.rounds is None or asked.rounds is None or asked.rounds < begun.rounds:
            raise InputError(
                f"{self.path}: rounds: {asked.rounds} is not allowed: the run has {begun.rounds} by now; allowed: "
                f"{begun.rounds} or more"
            )
        if begun.server.lr_schedule == "cosine":
            raise InputError(
                f"{self.path}: rounds: {asked.rounds} is not allowed: with server.lr_schedule = 'cosine' the learning "
                f"rate of every round depends on how many there are; allowed: {begun.rounds}"
            )
        if begun.privacy.clipping != "off":
            raise InputError(
                f"{self.path}: rounds: {asked.rounds} is not allowed: with [privacy] on, more rounds tell more than "
                f"was agreed on; allowed: {begun.rounds}"
            )

    def read_hashes(self) -> dict[str, str | None]:
        """What the data and the partition were when the run began."""
        manifest = self.path / "partition.json"
        return {
            "data_sha256": self._read_environment().get("data_sha256"),
            "partition_sha256": load_manifest(manifest).sha256 if manifest.is_file() else None,
        }

    def read_id(self) -> str:
        """What tells this run from every other, of the same experiment too."""
        identity = self._read_environment().get("id")
        if not isinstance(identity, str) or not RUN_ID.fullmatch(identity):
            raise RunError(f"{self.path / 'environment.json'}: has no id of the run")
        return identity

    def read_experiment(self) -> Experiment:
        """The resolved experiment of the run."""
        if not self.exists:
            raise InputError(f"{self.path}: there is no run here (no experiment.toml)")
        return Experiment.load(self.path / "experiment.toml")

    def read_rows(self) -> list[Row]:
        """The rows of metrics. A torn last line (the process was killed) is left out."""
        rows: list[Row] = []
        lines = self._metrics.read_bytes().splitlines(keepends=True) if self._metrics.is_file() else []
        for line in lines:
            if not line.endswith(b"\n"):
                break
            try:
                row = json.loads(line)
                if not isinstance(row, dict) or row.get("round") != len(rows) + 1:
                    raise ValueError(f"round {len(rows) + 1} is missing")
                rows.append(row)
            except ValueError as error:
                raise InputError(f"{self._metrics}: line {len(rows) + 1} is not a row of metrics ({error})") from error
        return rows

    def _read_environment(self) -> dict[str, Any]:
        path = self.path / "environment.json"
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read: {error}") from error

    def rewrite_rows(self, rows: Sequence[Row]) -> None:
        """Cuts the metrics back to the given rows."""
        with disk_errors_named(self._metrics):
            write_atomically(self._metrics, "".join(_json_line(row) for row in rows))

    def append_row(self, row: Row) -> None:
        """Adds the row of a finished round."""
        with disk_errors_named(self._metrics), self._metrics.open("a") as file:
            file.write(_json_line(row))
            file.flush()
            os.fsync(file.fileno())

    def write_summary(self, run: Run) -> None:
        """Writes summary.json."""
        with disk_errors_named(self.path):
            write_atomically(self.path / "summary.json", json.dumps(run.summary(), indent=2) + "\n")


def data_hash(dataset: Dataset) -> str:
    """SHA-256 of all labels and of up to a thousand inputs of each split, evenly spread: enough to tell data apart."""
    digest = hashlib.sha256()
    for split in (dataset.train, dataset.test):
        step = max(1, -(-len(split) // HASHED_INPUTS))
        digest.update(f"{tuple(split.inputs.shape)} {split.inputs.dtype}".encode())
        digest.update(split.labels.numpy().tobytes())
        digest.update(split.inputs[::step].contiguous().numpy().tobytes())
    return digest.hexdigest()


def environment() -> dict[str, Any]:
    """What the run was made with, for people who want to make it again."""
    packages = ("fedsol", "torch", "numpy", "safetensors", "scikit-learn")
    return {
        "command": shlex.join(sys.argv),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": {name: metadata.version(name) for name in packages},
        **source_commit(),
    }


def software(surroundings: Mapping[str, Any]) -> dict[str, str]:
    """What of an environment may change results: versions, and the commit of a checkout."""
    versions = {"python": surroundings.get("python", ""), **surroundings.get("packages", {})}
    if "commit" in surroundings:
        versions["commit"] = surroundings["commit"] + (" with changes" if surroundings.get("commit_modified") else "")
    return versions


def source_commit() -> dict[str, Any]:
    """The git commit of fedsol where it runs from a checkout, and whether files of it were changed since."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return {}
    git = ["git", "--no-optional-locks", "-C", str(root)]
    try:
        commit, changes = (
            subprocess.run([*git, *question], capture_output=True, text=True, timeout=10, check=True).stdout.strip()
            for question in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no", "--", "src"])
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": commit, "commit_modified": bool(changes)}


def rows_hash(rows: Sequence[Row]) -> str:
    """SHA-256 of rows of metrics, as they stand in the file."""
    return sha256("".join(_json_line(row) for row in rows).encode())


def _json_line(row: Mapping[str, Any]) -> str:
    return json.dumps(row) + "\n"
