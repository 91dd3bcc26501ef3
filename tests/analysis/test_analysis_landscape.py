"""The largest eigenvalues equal those of the dense Hessian, and the surface is the loss."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedsol.analysis import landscape
from fedsol.analysis.landscape import LandscapeAnalysis, Problem, problem_for, top_eigenpairs
from fedsol.errors import InputError, RunError
from fedsol.federation.federation import build_federation
from tests.support.toys import OnlyHead, TwoLayers, WithBatchNorm, moved_from, random_batch, split


def problem_of(module, inputs, classes, dtype):
    model = split(module.to(dtype), (inputs,))
    weights = {
        **model.initial_weights(),
        **moved_from({name: model.initial_weights()[name] for name in model.names}, size=0.5),
    }
    return Problem(
        model, weights, tuple(random_batch((inputs,), classes, count, dtype, seed=count) for count in (7, 12))
    )


def dense_hessian(problem):
    """Every entry, by torch's own second derivatives of the mean loss."""
    names = problem.model.names
    shapes = [problem.weights[name].shape for name in names]
    sizes = [shape.numel() for shape in shapes]
    flat = torch.cat([problem.weights[name].flatten() for name in names])
    problem.model.train(False)

    def loss(vector):
        parts = [part.view(shape) for part, shape in zip(vector.split(sizes), shapes, strict=True)]
        weights = {**problem.weights, **dict(zip(names, parts, strict=True))}
        losses = [
            F.cross_entropy(problem.model.outputs(weights, batch.inputs)[1], batch.labels, reduction="sum")
            for batch in problem.batches
        ]
        return sum(losses) / problem.examples

    return torch.autograd.functional.hessian(loss, flat).double().numpy()


MODELS = {
    "one layer": lambda: OnlyHead(4, 5),
    "two layers": lambda: TwoLayers(6, 5, 4, bias=True),
    "batch norm": lambda: WithBatchNorm(4),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", MODELS)
def test_eigenvalues_equal_the_dense_ones(name, dtype):
    torch.manual_seed(0)
    problem = problem_of(MODELS[name](), 6 if name == "two layers" else 4, 4, dtype)
    dense = dense_hessian(problem)
    expected_values, expected_vectors = np.linalg.eigh(dense)
    start = np.random.default_rng(0).standard_normal(problem.dimension)
    values, vectors = top_eigenpairs(problem, 5, start)
    np.testing.assert_allclose(values, expected_values[::-1][:5], rtol=0.01)
    for number in range(2):
        assert abs(expected_vectors[:, -1 - number] @ vectors[:, number]) == pytest.approx(1.0, abs=0.01)
        assert vectors[np.abs(vectors[:, number]).argmax(), number] > 0
    direction = np.random.default_rng(1).standard_normal(problem.dimension)
    np.testing.assert_allclose(problem.times_hessian(direction), dense @ direction, rtol=1e-3, atol=1e-4)


def test_a_real_model_of_the_library(tiny):
    """The embedded digits and a small network: 1,210 weights, still small enough for the dense computation."""
    experiment = tiny.override({"model.name": "mlp", "model.options": {"hidden": 10}})
    federation = build_federation(experiment)
    found = LandscapeAnalysis(100, 3, 0.5).landscape(federation, federation.initial_weights(), 0)
    problem = problem_for(federation, federation.initial_weights(), 100)
    expected = np.linalg.eigvalsh(dense_hessian(problem))[::-1][:5]
    np.testing.assert_allclose(found.eigenvalues, expected, rtol=0.01)
    assert found.ratio == pytest.approx(expected[0] / expected[4], rel=0.02)


def smooth(input_shape, classes):
    """A network without kinks, whose loss is a parabola near any place."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, classes))


def test_the_surface_is_the_loss_along_the_eigenvectors(tiny):
    federation = build_federation(tiny.override({"model.name": "tests.analysis.test_analysis_landscape:smooth"}))
    weights = federation.initial_weights()
    analysis = LandscapeAnalysis(60, 5, 0.2)
    found = analysis.landscape(federation, weights, 3)
    assert found.round == 3
    assert found.examples == 60
    assert found.places == pytest.approx((-0.2, -0.1, 0.0, 0.1, 0.2))
    assert found.losses[2][2] == pytest.approx(found.loss)
    # along v_1, loss(+h) + loss(-h) - 2 loss(0) is about h^2 lambda_1; along v_2 with lambda_2
    for sides, value in (
        ((found.losses[2][1], found.losses[2][3]), found.eigenvalues[0]),
        ((found.losses[1][2], found.losses[3][2]), found.eigenvalues[1]),
    ):
        assert (sum(sides) - 2 * found.loss) / 0.1**2 == pytest.approx(value, rel=0.05)
    assert found == analysis.landscape(federation, weights, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"points": 2}, "--points: must be 3 or more"),
        ({"examples": 0}, "--examples: must be 1 or more"),
        ({"radius": 0.0}, "--radius: must be greater than 0"),
        ({"radius": float("nan")}, "--radius: must be greater than 0"),
        ({"eigenvalues": 1}, "--eigenvalues: must be 2 or more"),
        ({"eigenvalues": 100_000}, r"eigenvalues: must be 1 to \d+ for this model \(got 100000\)"),
    ],
)
def test_bad_options_are_named(tiny, options, message):
    federation = build_federation(tiny)
    with pytest.raises(InputError, match=message):
        LandscapeAnalysis(**{"examples": 10, "points": 3, **options}).landscape(
            federation, federation.initial_weights(), 0
        )


def test_eigenvalues_that_cannot_be_found_are_an_error(monkeypatch):
    problem = problem_of(OnlyHead(4, 5), 4, 4, torch.float64)

    def fail(*_, **__):
        raise landscape.ArpackError(-9999)

    monkeypatch.setattr(landscape, "eigsh", fail)
    with pytest.raises(RunError, match="landscape: the eigenvalues of the Hessian could not be found"):
        landscape.top_eigenpairs(problem, 2, np.ones(problem.dimension))
