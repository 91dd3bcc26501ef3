"""Experiment files: what is accepted, what is refused and in which words, and the way back to TOML."""

import pkgutil
import subprocess
import sys
import tomllib

import pytest

import fedsol.config
from fedsol import Experiment, InputError, Run
from fedsol.algorithms.fedsol import FedSOL
from fedsol.config.experiment import find_experiment
from fedsol.config.overrides import apply_overrides, differing_keys, parse_override


def test_the_defaults_are_the_papers():
    experiment = Experiment()
    client = experiment.client
    assert (client.epochs, client.batch_size, client.lr, client.momentum, client.weight_decay) == (
        5,
        50,
        0.01,
        0.9,
        1e-5,
    )
    assert (experiment.server.lr_decay, experiment.server.weighting) == (0.99, "size")
    algorithm = experiment.algorithm
    assert algorithm["name"] == "fedsol"
    assert (algorithm["rho"], algorithm["perturb"], algorithm["strength"]) == (2.0, "head", "adaptive-column")
    assert (algorithm["usage"], algorithm["proximal"], algorithm["tau"]) == ("perturbed", "kl", 3.0)


PAPER_HYPERPARAMETERS = {
    "fedprox": {"mu": 1.0},
    "fedntd": {"beta": 1.0, "tau": 1.0},
    "fedsam": {"rho": 0.1},
    "fedasam": {"rho": 1.0},
    "feddyn": {"alpha": 0.1},
    "moon": {"mu": 0.1, "tau": 0.5},
    "fedsol": {"rho": 2.0, "tau": 3.0},
}


@pytest.mark.parametrize("name", PAPER_HYPERPARAMETERS)
def test_the_hyperparameters_are_the_papers(name):
    table = Experiment(algorithm={"name": name}).algorithm
    assert {key: table[key] for key in PAPER_HYPERPARAMETERS[name]} == PAPER_HYPERPARAMETERS[name]


@pytest.mark.parametrize(
    ("tables", "parts"),
    [
        ({"sede": 1}, ["sede: unknown key", "'seed'"]),
        ({"server": {"fractoin": 0.1}}, ["server.fractoin: unknown key", "'fraction'"]),
        ({"data": {"partition": {"alhpa": 1.0}}}, ["data.partition.alhpa", "'alpha'"]),
        ({"algorithm": {"name": "fedsol", "rh": 1}}, ["algorithm.rh: unknown key", "'rho'"]),
        ({"algorithm": {"name": "fedsool"}}, ["algorithm.name: unknown value 'fedsool'", "'fedsol'"]),
        ({"algorithm": {"name": 3}}, ["algorithm.name: ", "(got 3)", "must be a string"]),
        ({"algorithm": 3}, ["algorithm: ", "(got 3)", "must be a table"]),
        (
            {"algorithm": {"name": "fedsol", "rho": -1.0}},
            ["algorithm.rho: must be greater than or equal to 0 (got -1.0)"],
        ),
        ({"algorithm": {"name": "fedsol", "rho": "big"}}, ["algorithm.rho: ", "(got 'big')", "must be a valid number"]),
        (
            {"algorithm": {"name": "fedsol", "perturb": "tail"}},
            ["algorithm.perturb: must be ", "'body' or 'head' (got 'tail')"],
        ),
        ({"rounds": "ten"}, ["rounds: ", "(got 'ten')", "must be a valid integer"]),
        ({"rounds": 1.5}, ["rounds: ", "(got 1.5)"]),
        ({"rounds": 0}, ["rounds: ", "(got 0)", "greater than or equal to 1"]),
        ({"rounds": True}, ["rounds: ", "(got True)"]),
        ({"client": {"lr": float("nan")}}, ["client.lr: ", "(got nan)", "finite"]),
        ({"client": 5}, ["client: ", "(got 5)"]),
        ({"data": {"partition": {"alpha": 0}}}, ["data.partition.alpha: ", "(got 0)", "greater than 0"]),
        ({"data": {"partition": {"kind": "dirichelt"}}}, ["data.partition.kind: ", "(got 'dirichelt')", "'dirichlet'"]),
        ({"server": {"fraction": 1.5}}, ["server.fraction: ", "(got 1.5)", "less than or equal to 1"]),
        ({"engine": {"device": "gpu"}}, ["engine.device: ", "(got 'gpu')"]),
    ],
)
def test_bad_tables_are_refused_by_name(tables, parts):
    with pytest.raises(InputError) as caught:
        Experiment(**tables)
    for part in parts:
        assert part in str(caught.value)


def test_the_configuration_imports_no_torch():
    modules = [f"fedsol.config.{module.name}" for module in pkgutil.iter_modules(fedsol.config.__path__)]
    assert "fedsol.config.experiment" in modules
    code = f"import sys, {', '.join(modules)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_several_mistakes_are_all_named():
    with pytest.raises(InputError) as caught:
        Experiment(rounds=0, server={"fraction": 0.0})
    assert len(str(caught.value).splitlines()) == 2


def test_toml_and_back():
    experiment = Experiment(seed=3, rounds=7, algorithm={"name": "fedsol", "rho": 1.5}, client={"clip_norm": 2.0})
    assert Experiment(**tomllib.loads(experiment.to_toml())) == experiment


def test_a_file_that_is_missing_or_no_toml(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.toml: no such experiment file"):
        Experiment.load(tmp_path / "nothing.toml")
    (tmp_path / "bad.toml").write_text("seed = = 3")
    with pytest.raises(InputError, match=r"bad\.toml: cannot be read as TOML"):
        Experiment.load(tmp_path / "bad.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"binary\.toml: cannot be read as TOML"):
        Experiment.load(tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed=3", ("seed", 3)),
        ("algorithm.rho=1.5", ("algorithm.rho", 1.5)),
        ("data.name=cifar10", ("data.name", "cifar10")),
        ("data.partition.cap=false", ("data.partition.cap", False)),
        ('data.name="a b"', ("data.name", "a b")),
        ("data.name=dir/with=sign.npz", ("data.name", "dir/with=sign.npz")),
        ("model.options={width=32}", ("model.options", {"width": 32})),
    ],
)
def test_overrides_are_toml_values_or_bare_words(text, expected):
    assert parse_override(text) == expected


@pytest.mark.parametrize("text", ["seed", "=3", ""])
def test_an_override_without_key_or_value(text):
    with pytest.raises(InputError, match="must be key=value"):
        parse_override(text)


def test_another_algorithm_does_not_inherit_settings():
    tables = apply_overrides({"algorithm": {"name": "fedsol", "rho": 1.0}}, {"algorithm.name": "fedavg"})
    assert tables["algorithm"] == {"name": "fedavg"}
    tables = apply_overrides({"algorithm": {"name": "fedsol", "tau": 1.0}}, {"algorithm.rho": 3.0})
    assert tables["algorithm"] == {"name": "fedsol", "tau": 1.0, "rho": 3.0}


def test_an_override_through_a_value():
    with pytest.raises(InputError, match="is a value, not a table"):
        Experiment(seed=1).override({"seed.deeper": 3})


def test_an_algorithm_itself_is_welcome():
    assert Experiment(algorithm=FedSOL(rho=0.5)).algorithm["rho"] == 0.5


def test_learning_rates():
    experiment = Experiment(rounds=10, client={"lr": 0.5}, server={"lr_decay": 0.9})
    assert [experiment.learning_rate(t) for t in (1, 2, 3)] == pytest.approx([0.5, 0.45, 0.405])
    cosine = experiment.override({"server.lr_schedule": "cosine"})
    assert cosine.learning_rate(1) == pytest.approx(0.5)
    assert cosine.learning_rate(6) == pytest.approx(0.25)  # cos(pi / 2) = 0
    with pytest.raises(InputError, match="rounds: is missing"):
        Experiment(server={"lr_schedule": "cosine"}).learning_rate(1)


def test_differences_are_named_but_not_those_without_effect():
    one = Experiment(seed=1)
    other = one.override({"algorithm.rho": 1.0, "data.root": "/elsewhere", "seed": 2})
    assert differing_keys(one, other) == ["algorithm.rho", "seed"]


def test_settings_of_a_perturbation_differ_only_where_there_is_one():
    one = Experiment(algorithm={"name": "fedprox", "strength": "adaptive"})
    other = one.override({"algorithm.strength": "fixed", "algorithm.rho": 1.0, "algorithm.perturb": "body"})
    assert differing_keys(one, other) == []
    assert differing_keys(one, other.override({"algorithm.mu": 0.5})) == ["algorithm.mu"]
    perturbed = [run.override({"algorithm.usage": "perturbed"}) for run in (one, other)]
    assert differing_keys(*perturbed) == ["algorithm.perturb", "algorithm.rho", "algorithm.strength"]
    assert differing_keys(one, perturbed[1]) == [
        "algorithm.perturb",
        "algorithm.rho",
        "algorithm.strength",
        "algorithm.usage",
    ]


def test_the_step_of_the_server_is_that_of_plain_averaging():
    assert Experiment(server={"lr": 0.5}).server.lr == 0.5
    message = "^server.lr: must be 1 with server.optimizer = 'adam', whose step size is server.optimizer_lr .got 0.5.$"
    with pytest.raises(InputError, match=message):
        Experiment(server={"lr": 0.5, "optimizer": "adam"})


def test_epochs_have_no_effect_beside_steps():
    one, other = (Experiment(client={"steps": 3, "epochs": epochs}) for epochs in (1, 2))
    assert differing_keys(one, other) == []
    assert differing_keys(one, other.override({"client.steps": 4})) == ["client.steps"]


def test_the_setting_of_papers_on_federated_sharpness():
    experiment = Experiment(**find_experiment("cifar10-gn"))
    client, server, partition = experiment.client, experiment.server, experiment.data.partition
    assert (client.epochs, client.batch_size, client.lr, client.momentum) == (5, 50, 0.1, 0.0)
    assert (client.weight_decay, client.clip_norm, server.lr_decay, server.fraction) == (1e-3, 10.0, 0.998, 0.1)
    assert (partition.kind, partition.clients, partition.alpha) == ("dirichlet-client", 100, 0.1)
    assert (experiment.data.name, experiment.model.name, experiment.rounds) == ("cifar10", "resnet18-gn", 800)


def test_autocast_is_the_old_name_of_precision():
    assert Experiment().engine.precision == "float32"
    assert Experiment(engine={"autocast": "bfloat16"}) == Experiment(engine={"precision": "bfloat16"})
    assert Experiment(engine={"autocast": None}) == Experiment()
    reduced = Experiment().override({"engine.autocast": "bfloat16"})
    assert reduced.engine.precision == "bfloat16"
    assert reduced.override({"engine.precision": "float32"}).engine.precision == "float32"
    assert "autocast" not in reduced.to_toml()
    with pytest.raises(InputError, match="engine: `autocast` is the old name of `precision`, and they differ"):
        Experiment(engine={"autocast": "bfloat16", "precision": "float32"})
    with pytest.raises(InputError, match=r"engine\.precision: must be 'float32', 'bfloat16' or 'float16'"):
        Experiment().override({"engine.autocast": "int8"})


def test_a_run_that_was_written_with_the_old_name_is_read(tmp_path):
    text = Experiment(engine={"precision": "bfloat16"}).to_toml()
    for name, engine in {"new": text, "old": text.replace("precision =", "autocast =")}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "experiment.toml").write_text(engine)
    old, new = (Run.load(tmp_path / name) for name in ("old", "new"))
    assert old.settings == new.settings
    assert old.experiment == new.experiment
    (tmp_path / "old" / "experiment.toml").write_text("seed = 1\n")
    assert Run.load(tmp_path / "old").settings["engine.precision"] == "float32"
