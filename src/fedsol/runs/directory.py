"""RunDirectory: the files of a run."""

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedsol.config.experiment import Experiment
from fedsol.config.overrides import differing_keys, flatten
from fedsol.config.tables import PRIVATE
from fedsol.core.files import (
    append_text,
    disk_errors_named,
    make_directory,
    read_json_object,
    read_lines,
    write_atomically,
)
from fedsol.data.description import DATA_FILE, describe_data
from fedsol.data.manifest import Manifest, label_counts, load_manifest, partition_hash, save_manifest
from fedsol.data.types import Dataset, tensors_of
from fedsol.errors import InputError, RunError
from fedsol.federation.federation import Federation
from fedsol.privacy.account import ACCOUNT_FILE
from fedsol.runs.checkpoints import Checkpoints
from fedsol.runs.environment import environment, software
from fedsol.runs.rows import Row, read_rows, rows_to_text
from fedsol.runs.selection import Selection

log = logging.getLogger(__name__)

HASHED_INPUTS = 1000
FROZEN = "frozen_sha256"
"""The key of environment.json for the hash of a model's frozen weights, if it has any."""
ENDS = {"rounds", "server.patience", "server.stop_at"}
"""Keys that say when a run ends, and change nothing of the rounds before."""
FILES = (DATA_FILE, "environment.json", "metrics.jsonl", "partition.json", "summary.json")
FOLDERS = ("checkpoints", "analysis", "personal")
RUN_ID = re.compile(r"[0-9a-f]{32}")


class RunDirectory:
    """The files of one run. A file is replaced as a whole; rows of metrics are appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints")
        self._metrics = path / "metrics.jsonl"

    @property
    def exists(self) -> bool:
        """Whether a run was started here."""
        return (self.path / "experiment.toml").is_file()

    def check_exists(self) -> None:
        """Raise `InputError` unless a run was started here."""
        if not self.exists:
            raise InputError(f"{self.path}: no run here (no experiment.toml)")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock out other processes. The lock ends when this process does, for whatever reason."""
        path = self.path / "run.lock"
        make_directory(self.path)
        try:
            lock = FileLock(path).acquire(timeout=0)
        except Timeout:
            owner = ""
            with contextlib.suppress(OSError):
                owner = path.read_text().strip()
            raise InputError(f"{self.path}: in use by process {owner or 'unknown'}") from None
        except OSError as error:
            raise InputError(f"{self.path}: cannot be locked: {error.strerror or error}") from error
        with lock:
            with contextlib.suppress(OSError):  # Windows does not let anyone write to a locked file
                path.write_text(str(os.getpid()))
            self._remove_leftovers()
            yield

    def _remove_leftovers(self) -> None:
        """Remove what a killed process left half-written: only files that are written under the lock."""
        leftovers = [
            path for name in (*FILES, ACCOUNT_FILE, "experiment.toml") for path in self.path.glob(f".{name}.*.tmp")
        ]
        for path in [*leftovers, *self.checkpoints.folder.rglob(".*.tmp")]:
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def remove(self) -> None:
        """Remove the run, but nothing that fedsol did not write."""
        if not self.exists:
            return
        if (self.path / ACCOUNT_FILE).exists():
            raise InputError(
                f"{self.path}: has the privacy account of a deployment ({ACCOUNT_FILE}), which cannot be reset; choose "
                "another directory"
            )
        with self.locked(), disk_errors_named(self.path):
            (self.path / "experiment.toml").unlink()  # first: without it, there is no run here
            for name in (*FILES, *(path.name for path in self.path.glob("curve.*"))):
                (self.path / name).unlink(missing_ok=True)
            for name in FOLDERS:
                shutil.rmtree(self.path / name, ignore_errors=True)

    def begin(self, federation: Federation) -> None:
        """Start a new run. The experiment is written last: where it exists, all other files do."""
        experiment = federation.experiment
        has_rows = self._metrics.is_file() and self._metrics.stat().st_size
        if self.checkpoints.exist() or has_rows or (self.path / ACCOUNT_FILE).exists():
            raise InputError(f"{self.path}: has parts of a run but no experiment.toml; choose another directory")
        with disk_errors_named(self.path):
            self.checkpoints.folder.mkdir(parents=True, exist_ok=True)
            dataset, partition = federation.dataset, [indices.numpy() for indices in federation.partition]
            settings = experiment.data.partition.model_dump()
            manifest = Manifest(experiment.data.name, len(dataset.train), settings, experiment.seed, partition)
            counts = label_counts(dataset.train.labels.numpy(), partition, dataset.classes)
            save_manifest(self.path / "partition.json", manifest, counts)
            write_atomically(self.path / DATA_FILE, describe_data(dataset, experiment.data).to_json())
            identity = {"id": uuid.uuid4().hex, "data_sha256": data_hash(dataset)}
            if federation.model.frozen:
                identity[FROZEN] = federation.model.frozen_sha256
            self._write_json("environment.json", {**environment(), **identity})
            write_atomically(self._metrics, b"")
            write_atomically(self.path / "experiment.toml", experiment.to_toml())

    def check_same_run(self, federation: Federation) -> None:
        """Refuse to resume with a different experiment (except for a later end), data or partition."""
        saved, experiment = self.read_experiment(), federation.experiment
        differences = differing_keys(saved, experiment)
        if set(differences) - ENDS:
            raise InputError(f"{self.path}: the run started with different values of {', '.join(differences)}")
        if "rounds" in differences:
            self._check_rounds(saved, experiment.rounds)
        if differences:
            self._check_stop(saved, experiment)
        if self.read_environment().get("data_sha256") != data_hash(federation.dataset):
            raise InputError(f"{self.path}: the data of {experiment.data.name} has changed since the run started")
        if (frozen := self.read_environment().get(FROZEN)) is not None:
            federation.model.check_frozen(frozen, f"that {self.path} started with")
        if experiment.data.name == PRIVATE:
            return  # only the nodes know their samples
        if (partition := self.read_hashes()["partition_sha256"]) is None:
            raise InputError(f"{self.path / 'partition.json'}: is missing")
        if partition != partition_hash([indices.numpy() for indices in federation.partition]):
            raise InputError(f"{self.path}: the run started with a different partition (sha256 {partition})")

    def lengthen(self, experiment: Experiment) -> None:
        """Set the end of the run to the experiment's, and record the software."""
        saved = self.read_experiment()
        before, after = ({key: flatten(one.model_dump())[key] for key in ENDS} for one in (saved, experiment))
        if before == after:
            return
        note = {"from": saved.rounds, "to": experiment.rounds}
        changed = {key: value for key, value in after.items() if key != "rounds" and value != before[key]}
        with disk_errors_named(self.path):
            self._record("lengthened", {**note, **changed}, environment())
            write_atomically(self.path / "experiment.toml", saved.override(after).to_toml())

    def record_software(self, rounds_done: int) -> None:
        """Warn and record it if the next rounds use different software than the earlier ones."""
        known, now = self.read_environment(), environment()
        before = software({**known, **known.get("went_on", [{}])[-1]})
        changed = {name: value for name, value in software(now).items() if value != before.get(name)}
        if not rounds_done or not changed:
            return
        words = ", ".join(f"{name} {before.get(name) or 'unknown'} (now {value})" for name, value in changed.items())
        text = "%s: rounds 1 to %d ran with %s; the result may differ bitwise"
        log.warning(text, self.path, rounds_done, words)
        with disk_errors_named(self.path):
            self._record("went_on", {"after": rounds_done}, now)

    def _record(self, key: str, note: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """Add an event, and the software at that time, to a list in environment.json."""
        recorded = ("command", "started", "python", "packages", "commit", "commit_modified")
        known = self.read_environment()
        notes = [*known.get(key, []), {**note, **{name: now[name] for name in recorded if name in now}}]
        self._write_json("environment.json", {**known, key: notes})

    def _check_rounds(self, saved: Experiment, rounds: int | None) -> None:
        """Refuse fewer rounds, and more rounds where they would change finished ones."""
        allowed, reason = f"must be {saved.rounds}", ""
        if saved.rounds is None or rounds is None or rounds < saved.rounds:
            allowed, reason = f"must be at least {saved.rounds}", "the rounds that the run has now"
        elif saved.server.lr_schedule == "cosine":
            reason = "with server.lr_schedule = 'cosine', every learning rate depends on the number of rounds"
        if reason:
            raise InputError(f"{self.path}: rounds: {allowed} (got {rounds}): {reason}")

    def _check_stop(self, saved: Experiment, experiment: Experiment) -> None:
        """Refuse a rule by which finished rounds would not have been run."""
        rules = [Selection.of(flatten(one.model_dump())) for one in (saved, experiment)]
        if rules[0] == rules[1]:
            return
        rows = self.read_rows()
        stop = rules[1].find_stop(rows)
        if stop and stop.round < len(rows):
            raise InputError(
                f"{self.path}: server.patience, server.stop_at: with these values the run would have stopped after "
                f"round {stop.round}, but {len(rows)} rounds are done"
            )

    def read_hashes(self) -> dict[str, str | None]:
        """Return the hashes of the data and of the partition when the run started."""
        manifest = self.path / "partition.json"
        return {
            "data_sha256": self.read_environment().get("data_sha256"),
            "partition_sha256": load_manifest(manifest).sha256 if manifest.is_file() else None,
        }

    def read_id(self) -> str:
        """Return the unique id of the run."""
        identity = self.read_environment().get("id")
        if not isinstance(identity, str) or not RUN_ID.fullmatch(identity):
            raise RunError(f"{self.path / 'environment.json'}: id: is missing or invalid")
        return identity

    def read_experiment(self) -> Experiment:
        """Return the resolved experiment; code that it names is imported only when it is trained, not to read it."""
        self.check_exists()
        return Experiment.load_saved(self.path / "experiment.toml")

    def read_noise(self) -> float | None:
        """Return the noise multiplier that the run started with; None for a new run, or without `[privacy]`."""
        saved = self.read_experiment().privacy if self.exists else None
        return saved.noise_multiplier if saved and saved.is_on else None

    def read_rows(self, after: int = 0) -> list[Row]:
        """Return the rows of metrics after a round."""
        return read_rows(self._metrics, after)

    def read_lines(self) -> list[bytes]:
        """Return the rows of metrics as they are written, unchecked; earlier versions ended them by CRLF on Windows."""
        return [line.replace(b"\r\n", b"\n") for line in read_lines(self._metrics)]

    def read_environment(self) -> dict[str, Any]:
        """Return the content of environment.json."""
        return read_json_object(self.path / "environment.json")

    def keep_rows(self, text: bytes) -> None:
        """Remove what follows these rows of metrics."""
        with disk_errors_named(self._metrics):
            if not self._metrics.is_file() or self._metrics.stat().st_size != len(text):
                write_atomically(self._metrics, text)

    def append_row(self, row: Row) -> None:
        """Append the row of a finished round."""
        append_text(self._metrics, rows_to_text([row]))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json."""
        with disk_errors_named(self.path):
            self._write_json("summary.json", summary)

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        write_atomically(self.path / name, json.dumps(content, indent=2) + "\n")


def data_hash(dataset: Dataset) -> str:
    """Return the SHA-256 of all labels and of up to a thousand evenly spread inputs of each split."""
    digest = hashlib.sha256()
    for split in (dataset.train, dataset.test):
        step = max(1, -(-len(split) // HASHED_INPUTS))
        for name, tensor in tensors_of(split.inputs).items():
            digest.update(f"{name}{tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(split.labels.numpy().tobytes())
        for tensor in tensors_of(split.inputs).values():
            digest.update(tensor[::step].contiguous().numpy().tobytes())
    return digest.hexdigest()
