"""What fedsol knows by name, as plain data: algorithms and ready experiments, and how to list all the rest."""

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

Rows = list[dict[str, Any]]


def listing(what: str) -> Rows:
    """Return the rows of a list of names: algorithms, datasets, models or recipes.

    They are read from `listing.json`, which `make docs` makes from the code: the code itself would import torch.
    """
    rows: Rows = json.loads(resources.files("fedsol.config").joinpath("listing.json").read_text(encoding="utf-8"))[what]
    return rows


ALGORITHMS: dict[str, str | type] = {
    "fedavg": "fedsol.algorithms.fedavg:FedAvg",
    "fedprox": "fedsol.algorithms.fedprox:FedProx",
    "fednova": "fedsol.algorithms.fednova:FedNova",
    "scaffold": "fedsol.algorithms.scaffold:Scaffold",
    "fedntd": "fedsol.algorithms.fedntd:FedNTD",
    "fedsam": "fedsol.algorithms.fedsam:FedSAM",
    "fedasam": "fedsol.algorithms.fedsam:FedASAM",
    "feddyn": "fedsol.algorithms.feddyn:FedDyn",
    "moon": "fedsol.algorithms.moon:MOON",
    "fedsol": "fedsol.algorithms.fedsol:FedSOL",
    "fedsol-ablation": "fedsol.algorithms.ablation:FedSOLAblation",
    "fedcm": "fedsol.algorithms.fedcm:FedCM",
    "mofedsam": "fedsol.algorithms.mofedsam:MoFedSAM",
    "fedgamma": "fedsol.algorithms.fedgamma:FedGAMMA",
    "fedsmoo": "fedsol.algorithms.fedsmoo:FedSMOO",
    "fedlesam": "fedsol.algorithms.fedlesam:FedLESAM",
    "fedlesam-s": "fedsol.algorithms.fedlesam:FedLESAMS",
    "fedlesam-d": "fedsol.algorithms.fedlesam:FedLESAMD",
    "perturbed": "fedsol.algorithms.grid:Perturbed",
    "fedspeed": "fedsol.algorithms.fedspeed:FedSpeed",
    "fedacg": "fedsol.algorithms.fedacg:FedACG",
    "fedinit": "fedsol.algorithms.fedinit:FedInit",
    "fedexp": "fedsol.algorithms.fedexp:FedExP",
    "fedlc": "fedsol.algorithms.calibrated:FedLC",
    "fedrs": "fedsol.algorithms.calibrated:FedRS",
    "feddecorr": "fedsol.algorithms.feddecorr:FedDecorr",
    "local-only": "fedsol.algorithms.personal:LocalOnly",
    "perfedavg": "fedsol.algorithms.perfedavg:PerFedAvg",
    "fedbabu": "fedsol.algorithms.fedbabu:FedBABU",
    "fedper": "fedsol.algorithms.fedper:FedPer",
    "fedrep": "fedsol.algorithms.fedrep:FedRep",
    "fedbn": "fedsol.algorithms.fedbn:FedBN",
    "lg-fedavg": "fedsol.algorithms.lgfedavg:LGFedAvg",
    "ditto": "fedsol.algorithms.personal:Ditto",
    "knn-per": "fedsol.algorithms.personal:KNNPer",
}
"""The class of each algorithm, as `module:Class`; `fedsol.register` adds classes themselves."""

GROUPS: dict[str, dict[str, int | None]] = {
    "proximal": {"fedprox": 2020, "moon": 2021, "fedntd": 2022, "fedsol": 2024, "fedsol-ablation": 2024},
    "control variates": {"scaffold": 2020, "feddyn": 2021},
    "sharpness": {
        "fedsam": 2022,
        "fedasam": 2022,
        "mofedsam": 2022,
        "fedspeed": 2023,
        "fedgamma": 2023,
        "fedsmoo": 2023,
        "fedlesam": 2024,
        "fedlesam-s": 2024,
        "fedlesam-d": 2024,
        "perturbed": None,
    },
    "momentum": {"fedcm": 2021, "fedinit": 2023, "fedacg": 2024},
    "server": {"fedavg": 2017, "fednova": 2020, "fedexp": 2023},
    "calibration": {"fedrs": 2021, "fedlc": 2022, "feddecorr": 2023},
    "personal": {
        "local-only": None,
        "fedper": 2019,
        "lg-fedavg": 2020,
        "perfedavg": 2020,
        "ditto": 2021,
        "fedbn": 2021,
        "fedrep": 2021,
        "fedbabu": 2022,
        "knn-per": 2022,
    },
}
"""The algorithms by what they mainly change, and the year in which each was published."""

DEFAULT_ALGORITHM = "fedsol"


@dataclass(frozen=True)
class ReadyExperiment:
    """An experiment with a name: what `fedsol list experiments` says about it, and its tables."""

    description: str
    tables: dict[str, Any]


def _of_the_paper(title: str, data: str, model: str = "cnn", **partition: Any) -> ReadyExperiment:
    partition = partition or {"kind": "dirichlet", "alpha": 0.1}
    split = "two shards per client" if partition["kind"] == "sharding" else f"Dirichlet {partition['alpha']}"
    return ReadyExperiment(
        f"{title}, {split}, with the paper's clients, rounds and training settings.",
        {
            "data": {"name": data, "partition": partition},
            "model": {"name": model},
            "algorithm": {"name": DEFAULT_ALGORITHM},
        },
    )


EXPERIMENTS: dict[str, ReadyExperiment] = {
    "cifar10-sharding": _of_the_paper("CIFAR-10", "cifar10", kind="sharding", shards=2),
    "cifar10": _of_the_paper("CIFAR-10", "cifar10"),
    "cifar10-gn": ReadyExperiment(
        "CIFAR-10, ResNet-18-GN, Dirichlet 0.1 per client: the setting that papers on federated sharpness share; for "
        "their others --set data.partition.alpha=0.3 or 0.6.",
        {
            "rounds": 800,
            "data": {"name": "cifar10", "partition": {"kind": "dirichlet-client", "clients": 100, "alpha": 0.1}},
            "model": {"name": "resnet18-gn"},
            "algorithm": {"name": DEFAULT_ALGORITHM},
            "client": {
                "epochs": 5,
                "batch_size": 50,
                "lr": 0.1,
                "momentum": 0.0,
                "weight_decay": 1e-3,
                "clip_norm": 10.0,
            },
            "server": {"fraction": 0.1, "lr_decay": 0.998},
        },
    ),
    "cifar100": _of_the_paper("CIFAR-100", "cifar100", "resnet18", kind="dirichlet", alpha=0.05),
    "cinic10": _of_the_paper("CINIC-10", "cinic10"),
    "digits": ReadyExperiment(
        "Handwritten digits that come with scikit-learn, 20 heterogeneous clients, FedSOL: a few seconds.",
        {
            "data": {"name": "digits", "partition": {"kind": "dirichlet", "alpha": 0.1}},
            "algorithm": {"name": DEFAULT_ALGORITHM},
        },
    ),
    "imagenet100": _of_the_paper("ImageNet-100", "imagenet100", "resnet18"),
    "mnist": _of_the_paper("MNIST", "mnist"),
    "pathmnist": _of_the_paper("PathMNIST", "pathmnist"),
    "quickstart": ReadyExperiment(
        "Small images of clothes that ship with fedsol, two shards per client, the paper's clients and local steps.",
        {
            "data": {"name": "fashion-small", "partition": {"kind": "sharding", "shards": 2}},
            "client": {"batch_size": 5},
            "algorithm": {"name": DEFAULT_ALGORITHM},
        },
    ),
    "svhn": _of_the_paper("SVHN", "svhn"),
    "tissuemnist": _of_the_paper("TissueMNIST", "tissuemnist"),
}
