"""Optimizer settings that cannot be used are refused before anything is read or written."""

import pytest
import torch

import fedsol
from fedsol import Experiment, InputError
from fedsol.config.tables import ClientSettings
from fedsol.federation.optimizer import make_optimizer
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


@pytest.mark.parametrize("changes", [{}, {"momentum": 0.0}, {"weight_decay": 0.0}, {"clip_norm": 0.5}])
def test_plain_sgd_is_torchs_own_to_the_last_bit(changes):
    """Without its class: for many steps, a learning rate that falls, and a gradient in another memory layout."""
    settings = ClientSettings(**{"lr": 0.1, "weight_decay": 0.01, **changes})
    generator = torch.Generator().manual_seed(0)
    weights = {"conv": torch.randn(8, 3, 5, 5, generator=generator), "bias": torch.randn(8, generator=generator)}
    expected = {name: tensor.clone() for name, tensor in weights.items()}
    ours = make_optimizer(settings, weights, settings.lr)
    options = {"lr": settings.lr, "momentum": settings.momentum, "weight_decay": settings.weight_decay}
    torchs = torch.optim.SGD(expected.values(), **options, fused=True)
    for _ in range(5):
        gradients = {name: torch.randn(tensor.shape, generator=generator) for name, tensor in weights.items()}
        for name, tensor in expected.items():
            tensor.grad = gradients[name].clone()
        if settings.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(expected.values(), settings.clip_norm)
        torchs.step()
        ours.step({**gradients, "conv": gradients["conv"].to(memory_format=torch.channels_last)})
        ours.decay(0.9)
        torchs.param_groups[0]["lr"] *= 0.9
        assert all(torch.equal(weights[name], expected[name]) for name in weights)
        assert all(tensor.grad is None for tensor in weights.values())
