"""The grids behind the paper's tables: how many cells, and with which settings."""

import re
from pathlib import Path

import pytest

from fedsol.algorithms import make_algorithm
from fedsol.analysis.strength import own_strength
from fedsol.config.overrides import differing_keys
from fedsol.errors import InputError
from fedsol.paper.recipe import Figure, Folders, TrainedTable, table_of
from fedsol.paper.registry import RECIPES, find_recipe
from fedsol.paper.selection import select
from fedsol.paper.settings import METHODS, experiment
from fedsol.paper.store import fingerprint
from tests.support.tex import REPOSITORY, paper_source

ALL = {name: find_recipe(name) for name in RECIPES}
TABLES = {name: table_of(recipe) for name, recipe in ALL.items()}
CELLS = {name: table.cells for name, table in TABLES.items()}


def cell(recipe, row, column, block=""):
    (found,) = [cell for cell in CELLS[recipe] if cell.key == (block, row, column)]
    return found


@pytest.mark.parametrize(
    ("name", "cells", "experiments"),
    [
        ("gradient-projection", 6, 5),  # FedAvg is one experiment in two cells
        ("main", 144, 144),
        ("architectures", 36, 36),
        ("combinations", 30, 30),
        ("partial", 15, 13),  # rho = 0 is FedAvg in three rows
        ("larger-datasets", 16, 16),
        ("larger-models", 6, 6),
        ("objectives", 7, 7),
        ("learning-factors", 31, 26),  # the paper's own setting belongs to each factor
        ("adaptive-strength", 10, 10),
        ("learning-curves", 48, 48),
        ("learning-factors-sam", 36, 30),
        ("personalized", 33, 15),  # one run for every number of epochs, and FedAvg's for kNN-Per too
        ("orthogonality", 4, 4),
        ("strength", 1, 1),
        ("divergence", 2, 2),
        ("preservation", 2, 2),
        ("landscape", 3, 3),
    ],
)
def test_the_paper_cells_of_a_recipe(name, cells, experiments):
    own = [cell for cell in CELLS[name] if not cell.extra]
    assert len(own) == cells
    assert len({cell.key for cell in own}) == cells
    assert len({fingerprint(cell.experiment) for cell in own}) == experiments


def test_every_table_cell_has_its_number():
    for name, recipe in ALL.items():
        own = [one for one in CELLS[name] if not one.extra]
        assert isinstance(recipe, Figure) or all(one.paper is not None for one in own)


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if isinstance(table, TrainedTable)])
def test_the_setting_is_the_papers(name):
    expected = {
        "mnist": (100, 0.1, 200),
        "cifar10": (100, 0.1, 300),
        "svhn": (100, 0.1, 200),
        "cinic10": (200, 0.05, 300),
        "pathmnist": (200, 0.05, 200),
        "tissuemnist": (200, 0.05, 200),
        "cifar100": (100, 0.1, 300),
        "imagenet100": (100, 0.1, 300),
    }
    for one in CELLS[name]:
        run = one.experiment
        clients, fraction, rounds = expected[run.data.name]
        if one.facts.get("method") == "local-only":
            rounds = 1  # nobody takes part in a round
        if one.facts.get("method", "").endswith("-300"):
            rounds = 300  # those of the paper's text
        if name == "strength":
            rounds = 200  # that which the figure shows
        assert (run.data.partition.clients, run.rounds) == (clients, rounds)
        assert (run.client.batch_size, run.client.momentum, run.client.weight_decay) == (50, 0.9, 1e-5)
        assert (run.server.lr_decay, run.server.weighting, run.data.part) == (0.99, "size", 1.0)
        if "factor" not in one.facts:
            assert (run.server.fraction, run.client.epochs, run.client.lr) == (fraction, 5, 0.01)


def test_selected_hyperparameters():
    def algorithm(row, block="LDA", column="CIFAR-10, alpha = 0.3"):
        return cell("main", row, column, block).experiment.algorithm

    assert algorithm("FedProx")["mu"] == 1.0
    assert (algorithm("FedNTD")["beta"], algorithm("FedNTD")["tau"]) == (1.0, 1.0)
    assert (algorithm("FedSAM")["rho"], algorithm("FedASAM")["rho"]) == (0.1, 1.0)
    assert algorithm("FedNova")["control"] is False
    sol = algorithm("FedSOL")
    assert (sol["rho"], sol["tau"], sol["perturb"], sol["strength"], sol["proximal"]) == (
        2.0,
        3.0,
        "head",
        "adaptive",
        "kl",
    )
    assert METHODS["MOON"] == {"name": "moon", "mu": 0.1, "tau": 0.5}


def test_the_main_tables_number_at_alpha_one_tenth_is_that_of_rho_one_and_a_half():
    column = "CIFAR-10, alpha = 0.1"
    main = cell("main", "FedSOL", column, "LDA")
    partial = cell("partial", "Head", "rho = 1.5")
    assert main.experiment.algorithm["rho"] == 1.5
    assert main.paper.mean == partial.paper.mean == 64.13
    assert fingerprint(main.experiment) == fingerprint(partial.experiment)
    other = cell("main", "FedSOL, rho 2.0", column, "LDA")
    assert (other.experiment.algorithm["rho"], other.paper.mean, other.extra) == (2.0, 63.25, True)
    assert fingerprint(other.experiment) == fingerprint(cell("partial", "Head", "rho = 2.0").experiment)


def test_every_perturbation_is_the_papers_formula_but_for_the_rows_that_say_otherwise():
    found = {"adaptive": set(), "adaptive-column": set(), "fixed": set()}
    for name, cells in CELLS.items():
        for one in cells:
            if one.experiment is not None:
                strength = own_strength(make_algorithm(one.experiment.algorithm))
                if strength is not None:
                    found[strength].add((name, one.facts.get("method")))
    assert {name for name, _ in found["adaptive"]} >= {"main", "combinations", "objectives", "personalized", "strength"}
    rows = [("main", "fedsol-column"), ("main", "fedsol-released")]
    assert found["adaptive-column"] == {*rows, *(("learning-curves", method) for _, method in rows)}
    assert {name for name, _ in found["fixed"]} == {"adaptive-strength"}


def test_the_released_configuration_and_the_rounds_of_the_text_are_extra_rows():
    released = cell("main", "FedSOL, as released", "CIFAR-10, alpha = 0.1", "LDA")
    algorithm = released.experiment.algorithm
    assert (algorithm["rho"], algorithm["perturb"], algorithm["strength"]) == (1.0, "all", "adaptive-column")
    longer = [one for one in CELLS["main"] if one.key[1] == "FedSOL, 300 rounds"]
    assert {one.experiment.data.name for one in longer} == {"svhn"}
    for one in longer:
        plain = cell("main", "FedSOL", one.key[2], one.key[0])
        assert (one.experiment.rounds, plain.experiment.rounds, one.extra) == (300, 200, True)
        assert differing_keys(one.experiment, plain.experiment) == ["rounds"]
        assert one.paper == plain.paper


def test_a_run_without_a_perturbation_is_known_whatever_the_settings_of_one():
    fedprox = cell("main", "FedProx", "CIFAR-10, alpha = 0.1", "LDA").experiment
    for strength in ("adaptive", "adaptive-column"):
        assert fingerprint(fedprox.override({"algorithm.strength": strength})) == fingerprint(fedprox)
    combined = cell("combinations", "FedProx", "CIFAR-10, combined").experiment
    assert fingerprint(combined.override({"algorithm.strength": "adaptive-column"})) != fingerprint(combined)


def test_cells_that_tables_share_are_one_experiment():
    fedavg = fingerprint(cell("main", "FedAvg", "CIFAR-10, alpha = 0.1", "LDA").experiment)
    assert fedavg == fingerprint(cell("objectives", "A0", "performance").experiment)
    assert fedavg == fingerprint(cell("partial", "Body", "rho = 0.0").experiment)
    assert fedavg == fingerprint(cell("gradient-projection", "None (FedAvg)", "projection").experiment)
    fedprox = fingerprint(cell("main", "FedProx", "CIFAR-10, alpha = 0.1", "LDA").experiment)
    assert fedprox == fingerprint(cell("gradient-projection", "L2 Distance", "base").experiment)
    assert fedprox == fingerprint(cell("combinations", "FedProx", "CIFAR-10, base").experiment)
    for name in ("FedAvg", "FedSOL", "FedSOL, rho 2.0"):
        run = fingerprint(cell("main", name, "CIFAR-10, alpha = 0.1", "LDA").experiment)
        assert run == fingerprint(cell("learning-curves", name, "CIFAR-10").experiment)
    head = fingerprint(cell("architectures", "FedSOL", "CIFAR-10", "Res18").experiment)
    assert head == fingerprint(cell("larger-models", "ResNet-18", "FedSOL (head)").experiment)


def test_combinations_perturb_all_weights_with_rho_two():
    for row in ("FedProx", "FedNova", "Scaffold", "FedDyn", "MOON"):
        algorithm = cell("combinations", row, "SVHN, combined").experiment.algorithm
        assert (algorithm["usage"], algorithm["perturb"], algorithm["rho"]) == ("perturbed", "all", 2.0)
        assert cell("combinations", row, "SVHN, base").experiment.algorithm["usage"] == "auxiliary"
    assert cell("combinations", "FedNova", "SVHN, combined").experiment.algorithm["control"] is True


def test_models_partitions_and_objectives():
    assert cell("architectures", "FedAvg", "SVHN", "SL-ViT").experiment.model.name == "slvit"
    assert cell("larger-datasets", "FedAvg", "CIFAR-100, s = 10").experiment.model.name == "resnet18"
    partition = cell("larger-datasets", "FedAvg", "CIFAR-100, s = 10").experiment.data.partition
    assert (partition.kind, partition.shards) == ("sharding", 10)
    partition = cell("main", "FedAvg", "CIFAR-10, alpha = 0.05", "LDA").experiment.data.partition
    assert (partition.kind, partition.alpha) == ("dirichlet", 0.05)
    ablation = cell("objectives", "A4", "performance").experiment.algorithm
    assert (ablation["name"], ablation["strategy"], ablation["rho"]) == ("fedsol-ablation", "A4", 1.5)
    assert cell("gradient-projection", "KL-Divergence", "projection").experiment.algorithm["usage"] == "projected"


def test_the_papers_experiment_is_that_of_the_ready_file():
    from fedsol.cli.options import read_experiment
    from fedsol.federation.federation import fill_defaults

    ready = read_experiment("cifar10", ["algorithm.name=fedsam"])
    filled = fill_defaults(ready, dataset=None)
    assert fingerprint(filled) == fingerprint(experiment("cifar10", "alpha = 0.1", METHODS["FedSAM"]))


def test_selection():
    cells = CELLS["main"]
    some = select(cells, ["dataset=cifar10,alpha=0.10", "method=fedavg|fedsol"])
    assert [one.key[1] for one in some] == ["FedAvg", "FedSOL"]
    assert len(select(cells, [])) == 144
    assert [one.facts["method"] for one in select(cells, ["dataset=mnist,s=2,method=moon|FedAvg"])] == [
        "fedavg",
        "moon",
    ]
    assert select(cells, ["alpha=0.1,s=2"]) == []
    parts = select(cells, ["method=fedavg", "method=fedsol,dataset=cifar10,alpha=0.1"])
    assert [one.key[1] for one in parts] == ["FedAvg", "FedSOL"]


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ("", "'' is not allowed: must be KEY=VALUE"),
        ("cifar10", "must be KEY=VALUE"),
        ("method=fedavg,fedsol", "'fedsol' is not allowed: must be KEY=VALUE, several values as in"),
        ("datset=cifar10", "did you mean 'dataset'"),
        ("dataset=cifar11", "did you mean 'cifar1"),
        ("dataset=", "dataset= is not in this table"),
    ],
)
def test_selection_of_what_is_not_there(only, message):
    with pytest.raises(InputError, match=message):
        select(CELLS["main"], [only])


def test_a_recipe_is_known_by_its_own_name():
    assert {name: table.name for name, table in TABLES.items()} == {name: name for name in ALL}


def test_an_unknown_recipe():
    with pytest.raises(InputError, match="recipe: unknown value 'mian'; did you mean 'main'"):
        find_recipe("mian")


def test_settings_of_fedsol_are_the_papers():
    for name in ("hyperparameters", "scenarios"):
        cells = CELLS[name]
        ours = TABLES[name].compute(cells, Path("data"))
        assert {one.key: one.paper.mean for one in cells} == {key: value.mean for key, value in ours.items()}


def test_every_table_and_figure_of_the_paper_is_a_recipe():
    found = set(re.findall(r"\\label{((?:fig|tab):\w+)}", paper_source()))
    drawings = {"fig:fedsol_update", "fig:overview"}  # of the idea
    notation = {"tab:notations"}
    assert found - drawings - notation == {table.heading.label for table in TABLES.values()}


def test_what_each_recipe_reads():
    def data(name):
        return list(dict.fromkeys(one.dataset for one in CELLS[name] if one.dataset))

    assert data("toy") == data("flops") == data("latency") == data("scenarios") == []
    assert data("partitions") == data("landscape") == ["cifar10"]
    assert data("medical") == ["pathmnist", "tissuemnist"]
    assert data("personalized") == ["cifar10", "svhn", "tissuemnist"]


def test_flops_of_partial_perturbation():
    ours = TABLES["flops"].compute(CELLS["flops"], Path("data"))
    # Of a step's three equal parts (forward, and backward to inputs and to weights) the head's proximal gradient adds
    # the forward one, and little else: the paper's 1.33.
    assert ours["", "All", "FLOPs"].mean == pytest.approx(2.0, abs=0.01)
    assert ours["", "Head", "FLOPs"].mean == pytest.approx(1.33, abs=0.03)
    assert 1.9 < ours["", "Body", "FLOPs"].mean <= 2.0


def test_the_toy_example_ends_where_the_formulas_say(tmp_path):
    recipe, cells = ALL["toy"], CELLS["toy"]
    ours = recipe.table.compute(cells, tmp_path)
    # mu = 0.5, delta = 0.1: (1 / 1.5, 0.1 / 0.6); rho = 0.5: (1, 1) shortened by 0.5 of sqrt(2).
    assert [one.paper.mean for one in cells] == pytest.approx([2 / 3, 1 / 6, 0.646447, 0.646447], abs=1e-6)
    assert [ours[one.key].mean for one in cells] == pytest.approx([one.paper.mean for one in cells], abs=4e-3)
    written = recipe.draw(recipe.table, ours, Folders(tmp_path, tmp_path))
    assert [path.name for path in written.files] == ["toy.png", "toy.pdf"]


def test_latency_is_measured_with_the_l2_loss(monkeypatch, tmp_path):
    asked = {}

    def step_seconds(federation, methods, repetitions, warm_up):
        asked.update(methods, model=federation.experiment.model.name, shape=federation.dataset.input_shape)
        return {name: float(number) for number, name in enumerate(methods)}

    monkeypatch.setattr("fedsol.paper.untrained.step_seconds", step_seconds)
    ours = TABLES["latency"].compute(CELLS["latency"], tmp_path)
    assert (asked["model"], asked["shape"]) == ("resnet18", (3, 64, 64))
    assert (asked["FedSOL"].proximal, asked["FedSOL"].perturb) == ("l2", "head")
    assert [ours["", "Latency", name].mean for name in ("FedAvg", "FedProx", "FedNTD", "FedSAM", "FedSOL")] == [
        0.0,
        1.0,
        2.0,
        3.0,
        4.0,
    ]


def test_the_page_names_every_recipe():
    text = (REPOSITORY / "docs" / "reproduce.md").read_text(encoding="utf-8").partition("## The recipes")[2]
    assert set(re.findall(r"`([\w-]+)`", text.partition("The paper's numbers")[0])) - {
        "test_images",
        "test_labels",
    } == set(ALL)
