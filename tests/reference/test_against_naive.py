"""fedsol against the naive implementation of every method: whole federations, the same weights after every round."""

import functools
import json

import pytest
import torch

import fedsol
from fedsol.federation.federation import build_federation
from fedsol.training.callbacks import Callback
from tests.reference import naive

BASE = {
    "seed": 6,  # every client trains at least twice in three rounds (tested below)
    "rounds": 3,
    "data": {"partition": {"kind": "dirichlet", "clients": 5, "alpha": 0.3}},
    "model": {"name": "tests.reference.naive:smooth"},
    "client": {"epochs": 1, "batch_size": 75, "lr": 0.05, "weight_decay": 1e-3},
    "server": {"fraction": 0.8},
}
SERVER_OPTIMIZERS = {
    "momentum": {"server.optimizer_lr": 0.7, "server.optimizer_momentum": 0.6},
    "adam": {
        "server.optimizer_lr": 0.02,
        "server.optimizer_momentum": 0.8,
        "server.optimizer_beta2": 0.9,
        "server.optimizer_epsilon": 0.02,
    },
}
SERVER_OPTIMIZERS["yogi"] = SERVER_OPTIMIZERS["adam"]


def table(name, **settings):
    return {"name": name, **settings}


PAPERS_OWN = [table(name) for name in naive.METHODS if name not in ("fedsol-ablation", "perturbed")]
OTHER_SETTINGS = [
    table("fedprox", mu=0.3),
    table("fedntd", beta=0.5, tau=2.0),
    table("fedsam", rho=0.5),
    table("fedasam", rho=0.3),
    table("feddyn", alpha=0.5),
    table("moon", mu=2.0, tau=0.2),
    table("scaffold", steps="plain"),
    table("fednova", control=True),
    table("perfedavg", outer_lr=0.05),
    table("mofedsam", alpha=0.3, rho=0.5),
    table("fedsmoo", alpha=0.3, rho=0.5),
    table("fedspeed", rho=0.5, alpha=0.6, lam=2.0),
    table("perturbed", direction="momentum", strength="fixed", perturb="all", rho=0.5),
    table("fedacg", lam=0.6, beta=0.5),
    table("fedrep", head_share=0.8),
]
FEDSOL = [
    table("fedsol", perturb=perturb, strength=strength, proximal=proximal)
    for perturb in ("head", "body", "all")
    for strength in ("fixed", "adaptive", "adaptive-column")
    for proximal in ("kl", "l2")
] + [table("fedsol", proximal="not-true-kl", tau=2.0, rho=1.0)]
OTHER_USAGES = [
    table("fedsol", usage=usage, proximal=proximal, beta=0.5)
    for usage in ("auxiliary", "projected")
    for proximal in ("kl", "l2")
] + [table(name, usage="projected") for name in ("fedprox", "fedntd", "moon")]
COMBINATIONS = [
    table(name, usage="perturbed", perturb="all", rho=2.0, **settings)
    for name, settings in [
        ("fedprox", {}),
        ("fedntd", {}),
        ("scaffold", {}),
        ("scaffold", {"steps": "plain"}),
        ("fednova", {"control": True}),
        ("feddyn", {}),
        ("moon", {}),
    ]
]
ABLATION = [
    table("fedsol-ablation", strategy=strategy, beta=0.5, **settings)
    for strategy in ("A0", "A1", "A2", "A3", "A4", "A5", "A6")
    for settings in ({}, {"strength": "fixed", "perturb": "all", "proximal": "l2", "rho": 0.5})
]
WITH_BATCH_NORM = [
    table("fedavg"),
    table("fednova"),
    table("fedsam"),
    table("perfedavg", outer_lr=0.05),
    table("fedbabu"),
    table("fedsol"),
    table("fedsol", perturb="all", rho=0.5),
    table("fedsol", perturb="all", proximal="l2"),
    table("fedsol", usage="auxiliary"),
    table("moon", mu=2.0),
    table("moon", usage="perturbed"),
    table("fedlesam"),
    table("fedsmoo"),
    table("fedbn"),
    table("fedper"),
    table("lg-fedavg"),
]


class History(Callback):
    """The global weights after every round."""

    def __init__(self):
        self.weights = []

    def round_finished(self, result):
        self.weights.append(result.after.weights)


def experiment_for(algorithm, changes=None):
    return fedsol.Experiment(**BASE, algorithm=algorithm).override(changes or {})


def difference(algorithm, changes=None, naive_algorithm=None, naive_changes=None):
    """The largest difference of any weight after any round; the naive side may be given something else."""
    ours = fedsol_history(json.dumps(algorithm), json.dumps(changes or {}))
    expected = naive_history(
        json.dumps(naive_algorithm or algorithm), json.dumps({**(changes or {}), **(naive_changes or {})})
    )
    assert len(ours) == len(expected) == 3
    found = 0.0
    for weights, reference in zip(ours, expected, strict=True):
        assert weights.keys() == reference.keys()
        for name, tensor in reference.items():
            assert weights[name].shape == tensor.shape
            assert weights[name].dtype == tensor.dtype
            if tensor.is_floating_point():  # all but batch norm's counters
                assert torch.isfinite(weights[name]).all()
                found = max(found, float((weights[name] - tensor).abs().max()))
    return found


@functools.cache
def fedsol_history(algorithm, changes):
    history = History()
    run = fedsol.train(experiment_for(json.loads(algorithm), json.loads(changes)), callbacks=[history])
    assert all(torch.equal(run.weights[name], tensor) for name, tensor in history.weights[-1].items())
    return history.weights


@functools.cache
def naive_history(algorithm, changes):
    return naive.train(experiment_for({"name": "fedavg"}, json.loads(changes)), json.loads(algorithm))


def name_of(value):
    """A readable test id."""
    if isinstance(value, dict):
        return "-".join(str(v) if k in ("name", "strategy") else f"{k}={v}" for k, v in value.items())
    return str(value)


def test_the_federation_shows_what_it_has_to():
    """States are used again, step counts and sizes differ, and not every client is there in every round."""
    rows = fedsol.train(experiment_for({"name": "fedavg"})).rows
    seen = [client for row in rows for client in row["client_ids"]]
    assert all(seen.count(client) >= 2 for client in range(5))
    assert any(seen.count(client) < 3 for client in range(5))
    steps = {-(-len(indices) // 75) for indices in build_federation(experiment_for({"name": "fedavg"})).partition}
    assert len(steps) >= 3
    assert min(steps) >= 3


@pytest.mark.parametrize(
    "algorithm", [*PAPERS_OWN, *OTHER_SETTINGS, *FEDSOL, *OTHER_USAGES, *COMBINATIONS, *ABLATION], ids=name_of
)
def test_every_round_ends_with_the_naive_weights(algorithm):
    assert difference(algorithm) <= 1e-5


@pytest.mark.parametrize(
    "algorithm",
    [
        table("fedntd"),
        table("fedasam"),
        table("moon"),
        table("fedsol"),
        table("fedsol", perturb="body", strength="fixed"),
        table("fedsol", perturb="all", strength="fixed"),
    ],
    ids=name_of,
)
def test_in_double_precision_nothing_is_left_but_rounding(algorithm):
    """With relus, whose kinks make float32 too coarse a comparison."""
    assert difference(algorithm, {"model.name": "tests.reference.naive:double"}) <= 1e-11


OF_THE_CNN = [
    *(table(name) for name in ("fedprox", "scaffold", "fedntd", "fedsam", "feddyn", "moon", "perfedavg")),
    *(table("fedsol", perturb=perturb) for perturb in ("body", "all")),
    table("fedsol", strength="adaptive", proximal="l2"),
]


@pytest.mark.parametrize(
    "algorithm",
    [
        table("fedavg"),
        table("fedsol"),
        *(pytest.param(algorithm, marks=pytest.mark.full) for algorithm in OF_THE_CNN),
    ],
    ids=name_of,
)
def test_the_papers_cnn_ends_with_the_naive_weights(algorithm):
    assert difference(algorithm, {"model.name": "tests.reference.naive:convolutional"}) <= 1e-9


@pytest.mark.parametrize("algorithm", WITH_BATCH_NORM, ids=name_of)
def test_running_statistics_are_the_naive_ones_too(algorithm):
    assert difference(algorithm, {"model.name": "tests.reference.naive:normalized"}) <= 1e-5


@pytest.mark.parametrize(
    "algorithm",
    [
        table("fedavg"),
        table("fedprox"),
        table("scaffold"),
        table("fedsol", perturb="body"),
        table("fedsol", perturb="all"),
        table("fedsol", strength="fixed", rho=0.5),
    ],
    ids=name_of,
)
def test_the_body_alone_is_trained_on_top_of_other_methods(algorithm):
    assert difference(algorithm, {"client.trains": "body"}) <= 1e-5
    assert difference(algorithm, {"client.trains": "body"}, naive_changes={"client.trains": "all"}) > 1e-4


@pytest.mark.parametrize("algorithm", [table("perfedavg"), table("fedbabu")], ids=name_of)
def test_several_epochs_of_the_personal_methods(algorithm):
    """An odd number of batches in each epoch: the last of an epoch is no pair with the first of the next."""
    assert difference(algorithm, {"client.epochs": 2, "client.batch_size": 60, "server.lr_decay": 0.8}) <= 1e-5


@pytest.mark.parametrize("algorithm", [table("fedavg"), table("fednova"), table("scaffold")], ids=name_of)
def test_a_number_of_steps_and_a_step_of_the_server(algorithm):
    changes = {"client.steps": 5, "client.batch_size": 60, "server.lr": 0.7}
    assert difference(algorithm, changes) <= 1e-5
    assert difference(algorithm, changes, naive_changes={"client.steps": None}) > 1e-4
    assert difference(algorithm, changes, naive_changes={"server.lr": 1.0}) > 1e-4


@pytest.mark.parametrize("optimizer", SERVER_OPTIMIZERS)
def test_server_optimizers_take_the_naive_steps(optimizer):
    changes = {"server.optimizer": optimizer, **SERVER_OPTIMIZERS[optimizer]}
    assert difference(table("fedavg"), changes) <= 1e-5


@pytest.mark.parametrize("algorithm", [table("fedavg"), table("fednova"), table("feddyn")], ids=name_of)
def test_uniform_shares_and_another_local_optimizer(algorithm):
    changes = {"server.weighting": "uniform", "client.momentum": 0.5, "client.epochs": 2, "server.lr_decay": 0.8}
    assert difference(algorithm, changes) <= 1e-5


@pytest.mark.parametrize(
    ("algorithm", "other"),
    [
        (table("fedprox"), table("fedprox", mu=0.9)),
        (table("fedprox"), table("fedavg")),
        (table("fedntd"), table("fedntd", beta=0.9)),
        (table("fedntd", beta=0.5, tau=2.0), table("fedntd", beta=0.5, tau=1.0)),
        (table("fedsam"), table("fedsam", rho=0.12)),
        (table("fedasam"), table("fedasam", rho=0.9)),
        (table("feddyn"), table("feddyn", alpha=0.11)),
        (table("moon", mu=2.0, tau=0.2), table("moon", mu=1.9, tau=0.2)),
        (table("moon", mu=2.0, tau=0.2), table("moon", mu=2.0, tau=0.25)),
        (table("scaffold"), table("scaffold", steps="plain")),
        (table("scaffold", usage="perturbed"), table("scaffold", usage="perturbed", steps="plain")),
        (table("fednova"), table("fedavg")),
        (table("perfedavg"), table("perfedavg", outer_lr=0.011)),
        (table("perfedavg"), table("fedavg")),
        (table("fedbabu"), table("fedavg")),
        (table("fedcm"), table("fedcm", alpha=0.12)),
        (table("mofedsam"), table("fedcm")),
        (table("fedgamma"), table("scaffold")),
        (table("fedsmoo"), table("fedsmoo", rho=0.13)),
        (table("fedsmoo"), table("feddyn")),
        (table("fedlesam"), table("fedlesam", rho=0.12)),
        (table("fedlesam-s"), table("scaffold")),
        (table("fedlesam-d"), table("feddyn")),
        (table("fedspeed"), table("fedspeed", rho=0.13)),
        (table("fedspeed"), table("fedspeed", lam=11.0)),
        (table("fedacg"), table("fedacg", lam=0.86)),
        (table("fedacg", beta=0.5), table("fedacg", beta=0.4)),
        (table("fedinit"), table("fedinit", beta=0.11)),
        (table("fedexp"), table("fedavg")),
        (table("fedlc"), table("fedlc", tau=1.1)),
        (table("fedrs"), table("fedrs", alpha=0.4)),
        (table("feddecorr"), table("fedavg")),
        (table("fedper"), table("fedavg")),
        (table("fedper"), table("fedrep")),
        (table("fedrep"), table("fedrep", head_share=0.8)),
        (table("lg-fedavg"), table("fedper")),
        (table("fednova", control=True), table("fednova")),
        (table("fednova", control=True), table("scaffold")),
        (table("fedsol"), table("fedsol", rho=1.9)),
        (table("fedsol"), table("fedsol", strength="adaptive")),
        (table("fedsol"), table("fedsol", perturb="all")),
        (table("fedsol"), table("fedsol", proximal="l2")),
        (table("fedsol", proximal="not-true-kl"), table("fedsol")),
        (table("fedsol", usage="auxiliary"), table("fedsol", usage="auxiliary", tau=2.5)),
        (table("fedsol", usage="auxiliary"), table("fedsol", usage="auxiliary", beta=0.5)),
        (table("fedsol", usage="projected"), table("fedavg")),
        *(
            (table("fedsol-ablation", strategy=f"A{i}", beta=0.5), table("fedsol-ablation", strategy=f"A{j}", beta=0.5))
            for i, j in [(1, 0), (2, 3), (3, 4), (4, 6), (5, 2), (6, 3)]
        ),
    ],
    ids=name_of,
)
def test_the_comparison_sees_another_algorithm(algorithm, other):
    assert difference(algorithm, naive_algorithm=other) > 1e-4


@pytest.mark.parametrize(
    "naive_changes",
    [
        {"client.momentum": 0.89},
        {"client.weight_decay": 0.0},
        {"client.lr": 0.049},
        {"server.lr_decay": 0.98},
        {"server.weighting": "uniform"},
    ],
    ids=name_of,
)
def test_the_comparison_sees_another_training(naive_changes):
    assert difference(table("fedavg"), naive_changes=naive_changes) > 1e-4


@pytest.mark.parametrize(
    ("optimizer", "naive_changes"),
    [
        ("momentum", {"server.optimizer_lr": 0.69}),
        ("momentum", {"server.optimizer_momentum": 0.5}),
        ("adam", {"server.optimizer": "yogi"}),
        ("adam", {"server.optimizer_momentum": 0.75}),
        ("adam", {"server.optimizer_beta2": 0.85}),
        ("yogi", {"server.optimizer_beta2": 0.85}),
        ("yogi", {"server.optimizer_epsilon": 0.01}),
    ],
    ids=name_of,
)
def test_the_comparison_sees_another_server_optimizer(optimizer, naive_changes):
    changes = {"server.optimizer": optimizer, **SERVER_OPTIMIZERS[optimizer]}
    assert difference(table("fedavg"), changes, naive_changes=naive_changes) > 1e-4
