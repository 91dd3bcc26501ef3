"""What every framework is given: one file that says the work, the same data, and a place for the timestamps."""

import json
import time
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Workload:
    """Federated averaging of one network on one dataset, dealt out in one way."""

    data: str
    """An .npz file with x_train (uint8), y_train, x_test and y_test."""
    partition: str
    """A JSON list with the indices of every client's training images."""
    mean: list[float]
    std: list[float]
    network: str
    clients: int
    sampled: int
    epochs: int
    batch_size: int
    lr: float
    momentum: float
    weight_decay: float
    evaluate_batch: int
    rounds: int
    threads: int = 1
    """Torch threads of a process that trains (fedsol decides by itself)."""

    @classmethod
    def read(cls, path: str | Path) -> "Workload":
        """Reads what `write` wrote."""
        return cls(**json.loads(Path(path).read_text(encoding="utf-8")))

    def write(self, path: Path) -> None:
        """Writes the workload as JSON."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    def arrays(self) -> dict[str, np.ndarray]:
        """The data as it is stored."""
        with np.load(self.data, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}

    def indices(self) -> list[np.ndarray]:
        """The training images of every client."""
        return [np.array(client) for client in json.loads(Path(self.partition).read_text(encoding="utf-8"))]

    def normalized(self, images: np.ndarray) -> np.ndarray:
        """Images as float32, as the network sees them."""
        mean = np.array(self.mean, dtype=np.float32)[:, None, None]
        std = np.array(self.std, dtype=np.float32)[:, None, None]
        return (images.astype(np.float32) / 255 - mean) / std


@dataclass
class Record:
    """What a run reports: when each round ended, how many local steps it took, how good the model was."""

    stamps: list[float] = field(default_factory=list)
    """Seconds since the epoch: before the first round, then after each."""
    steps: list[int] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)

    def stamp(self) -> None:
        """Notes the time."""
        self.stamps.append(time.time())

    def write(self, path: str, packages: tuple[str, ...]) -> None:
        """Writes the record, with the versions of packages, as JSON."""
        versions: dict[str, Any] = {name: metadata.version(name) for name in packages}
        content = {"stamps": self.stamps, "steps": self.steps, "accuracies": self.accuracies, "versions": versions}
        Path(path).write_text(json.dumps(content), encoding="utf-8")
