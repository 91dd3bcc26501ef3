"""The paper's experimental setting: datasets, partitions, models, and methods with their selected hyperparameters."""

from collections.abc import Mapping
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.data.catalog import SPECS

SEEDS = (0, 1, 2)
CIFAR, LDA = "cifar10", "alpha = 0.1"

DATASETS = {
    "MNIST": "mnist",
    "CIFAR-10": "cifar10",
    "SVHN": "svhn",
    "CINIC-10": "cinic10",
    "PathMNIST": "pathmnist",
    "TissueMNIST": "tissuemnist",
    "CIFAR-100": "cifar100",
    "ImageNet-100": "imagenet100",
}
"""As the paper names them, and as fedsol does."""

MODELS = {"Vgg11": "vgg11", "VggNet-11": "vgg11", "Res18": "resnet18", "ResNet-18": "resnet18", "SL-ViT": "slvit"}

# Spelled out although most are fedsol's defaults: the paper's choices must not change with a default.
METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {"name": "fedavg"},
    "FedProx": {"name": "fedprox", "mu": 1.0},
    "FedNova": {"name": "fednova"},
    "Scaffold": {"name": "scaffold"},
    "FedNTD": {"name": "fedntd", "beta": 1.0, "tau": 1.0},
    "FedSAM": {"name": "fedsam", "rho": 0.1},
    "FedASAM": {"name": "fedasam", "rho": 1.0},
    "FedDyn": {"name": "feddyn", "alpha": 0.1},
    "MOON": {"name": "moon", "mu": 0.1, "tau": 0.5},
    "FedSOL": {
        "name": "fedsol",
        "usage": "perturbed",
        "rho": 2.0,
        "strength": "adaptive",
        "perturb": "head",
        "proximal": "kl",
        "tau": 3.0,
        "beta": 1.0,
    },
}
"""`[algorithm]` of every method, with the hyperparameters that the paper selected (FedDyn's: its released code)."""

CLIENT = {"epochs": 5, "batch_size": 50, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5}
"""Local training; the batch size is only in the released code."""


def fedsol(**changes: Any) -> dict[str, Any]:
    """Return FedSOL as the paper selected it, with changes."""
    return {**METHODS["FedSOL"], **changes}


def experiment(
    dataset: str,
    level: str,
    algorithm: Mapping[str, Any],
    model: str = "cnn",
    changes: Mapping[str, Any] | None = None,
) -> Experiment:
    """Return one run of the paper, resolved; `level` is `s = 2` or `alpha = 0.1`, `changes` has dotted keys."""
    spec = SPECS[dataset]
    kind, _, value = level.partition(" = ")
    partition = (
        {"kind": "sharding", "shards": int(value)} if kind == "s" else {"kind": "dirichlet", "alpha": float(value)}
    )
    made = Experiment(
        rounds=spec.rounds,
        data={"name": dataset, "download": False, "partition": {**partition, "clients": spec.clients}},
        model={"name": model},
        algorithm=dict(algorithm),
        client=CLIENT,
        server={"fraction": spec.fraction, "lr_decay": 0.99, "weighting": "size"},
    )
    return made.override(changes) if changes else made
