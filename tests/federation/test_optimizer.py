"""Optimizer settings that cannot be used are refused before anything is read or written."""

import pytest

import fedsol
from fedsol import Experiment, InputError
from fedsol.studies.run_many import RunSpec, run_many
from tests.support.cli import fedsol as command

BAD = [
    ({"client": {"optimizer": "sdg"}}, ["client.optimizer: unknown value 'sdg'", "sgd"]),
    ({"client": {"optimizer_options": {"nestrov": True}}}, ["client.optimizer: cannot use 'sgd' with", "nestrov"]),
    ({"client": {"optimizer_options": {"lr": 1.0}}}, ["client.optimizer_options: must not have 'lr'", "client.lr"]),
    ({"client": {"optimizer": "lbfgs"}}, ["client.optimizer: cannot use 'lbfgs'"]),
    ({"client": {"optimizer": "sparseadam"}}, ["client.optimizer: cannot use 'sparseadam'"]),
]


@pytest.mark.parametrize(("settings", "parts"), BAD)
def test_a_bad_optimizer_is_refused_by_name(settings, parts, tmp_path):
    experiment = Experiment(**settings, data={"name": "cifar10", "root": str(tmp_path / "data")})
    good, bad = RunSpec("good", Experiment(), tmp_path / "good"), RunSpec("bad", experiment, tmp_path / "bad")
    for start in (
        lambda: fedsol.train(experiment, out=tmp_path / "run"),
        lambda: next(run_many([good, bad], [], False)),
    ):
        with pytest.raises(InputError) as caught:
            start()
        for part in parts:
            assert part in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["run", "compare", "estimate"])
def test_every_command_refuses_it_at_once(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = command(name, "--set", "client.optimizer=sdg")
    assert done.exit_code == 2, done.output
    assert "client.optimizer: unknown value 'sdg'; did you mean 'sgd'?" in done.output
    assert not list(tmp_path.iterdir())
