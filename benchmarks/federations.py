"""The federation that the benchmarks measure: the paper's CNN on CIFAR-10-like data, 100 clients, 10 sampled."""

from pathlib import Path
from typing import Any

from fedsol import Experiment

HERE = Path(__file__).parent


def paper_experiment(**changes: Any) -> Experiment:
    """Equal clients of 500 images, five epochs in batches of 50, CIFAR-10's augmentation; `__` in keys for dots."""
    base = Experiment(
        rounds=1,
        data={
            "name": f"{HERE / 'data.py'}:like_cifar10",
            "partition": {"kind": "iid", "clients": 100},
            "augmentation": {"pad": 4, "flip": True, "cutout": 16},
        },
        model={"name": "cnn"},
        algorithm={"name": "fedavg"},
        server={"fraction": 0.1},
    )
    return base.override({key.replace("__", "."): value for key, value in changes.items()})
