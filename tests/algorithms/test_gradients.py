"""Equations 5 to 8: the perturbation by hand, its degenerate cases, and the one-forward head path."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from fedsol import perturbation
from fedsol.algorithms.gradients import Perturbation, perturbed, plain, projected
from fedsol.algorithms.proximal import KL, L2, Contrastive
from fedsol.config.model import ModelSettings
from fedsol.core.weights import add, dot, equal, norm, pick
from fedsol.data.batches import Batch
from fedsol.models import MODELS, ModelShape
from fedsol.models.build import build_model, build_split_model
from tests.support.toys import OnlyHead, TwoLayers, moved_from, random_batch, split, task_for

STRENGTHS = ["fixed", "adaptive", "adaptive-column"]
DIGITS = ModelShape((1, 8, 8), 10)
MODEL_SHAPES = {"small": (1, 8, 8), "mlp": (5,)}


# One 2 x 2 tensor and one vector, by hand:
#   w - a = [[3, 0], [4, 0]] and [5];  g = [[1, 2], [2, 4]] and [0], so ||g|| = sqrt(1 + 4 + 4 + 16) = 5.
ANCHOR = {"matrix": torch.tensor([[1.0, 1.0], [1.0, 1.0]]), "bias": torch.tensor([2.0])}
WEIGHTS = {"matrix": torch.tensor([[4.0, 1.0], [5.0, 1.0]]), "bias": torch.tensor([7.0])}
DIRECTION = {"matrix": torch.tensor([[1.0, 2.0], [2.0, 4.0]]), "bias": torch.tensor([0.0])}


def test_fixed_strength_by_hand():
    # eps = rho * g / ||g|| = 10 / 5 * g = 2 g
    found = perturbation(DIRECTION, WEIGHTS, ANCHOR, 10.0, "fixed")
    torch.testing.assert_close(found["matrix"], torch.tensor([[2.0, 4.0], [4.0, 8.0]]))
    torch.testing.assert_close(found["bias"], torch.tensor([0.0]))


def test_adaptive_strength_by_hand():
    # Lambda of the matrix: |w - a| / ||w - a|| = [[3, 0], [4, 0]] / 5, so eps = 2 g * Lambda
    found = perturbation(DIRECTION, WEIGHTS, ANCHOR, 10.0, "adaptive")
    torch.testing.assert_close(found["matrix"], torch.tensor([[2 * 0.6, 0.0], [4 * 0.8, 0.0]]))


def test_adaptive_column_strength_by_hand():
    # w - a = [[3, 5], [4, 12]]: the columns have norms 5 and 13; the vector's norm is 5, its Lambda 1.
    weights = {"matrix": ANCHOR["matrix"] + torch.tensor([[3.0, 5.0], [4.0, 12.0]]), "bias": WEIGHTS["bias"]}
    direction = {"matrix": DIRECTION["matrix"], "bias": torch.tensor([12.0])}  # ||g|| = sqrt(25 + 144) = 13
    found = perturbation(direction, weights, ANCHOR, 13.0, "adaptive-column")
    expected = torch.tensor([[1 * 3 / 5, 2 * 5 / 13], [2 * 4 / 5, 4 * 12 / 13]])
    torch.testing.assert_close(found["matrix"], expected)
    torch.testing.assert_close(found["bias"], torch.tensor([12.0]))


def test_the_norm_is_taken_over_all_perturbed_tensors_together():
    direction = {"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}
    weights = {"a": torch.tensor([1.0]), "b": torch.tensor([1.0])}
    found = perturbation(direction, weights, {n: torch.zeros(1) for n in weights}, 1.0, "fixed")
    torch.testing.assert_close(found, {"a": torch.tensor([0.6]), "b": torch.tensor([0.8])})


@pytest.mark.parametrize("strength", ["adaptive", "adaptive-column"])
def test_no_perturbation_and_no_nan_where_nothing_moved(strength):
    found = perturbation(DIRECTION, ANCHOR, ANCHOR, 2.0, strength)
    assert all(torch.equal(tensor, torch.zeros_like(tensor)) for tensor in found.values())


@pytest.mark.parametrize("strength", STRENGTHS)
def test_a_zero_direction_gives_no_perturbation(strength):
    direction = {name: torch.zeros_like(tensor) for name, tensor in WEIGHTS.items()}
    found = perturbation(direction, WEIGHTS, ANCHOR, 2.0, strength)
    assert all(torch.equal(tensor, torch.zeros_like(tensor)) for tensor in found.values())


@pytest.mark.parametrize("strength", STRENGTHS)
def test_scalars_and_vectors_have_a_strength_too(strength):
    weights = {"scalar": torch.tensor(3.0), "vector": torch.tensor([3.0, 4.0])}
    anchor = {"scalar": torch.tensor(1.0), "vector": torch.zeros(2)}
    found = perturbation({n: torch.ones_like(t) for n, t in weights.items()}, weights, anchor, 1.0, strength)
    assert found["scalar"].shape == ()
    assert float(found["scalar"]) == pytest.approx(1 / math.sqrt(3))


@pytest.mark.parametrize("strength", STRENGTHS)
def test_the_step_of_a_perturbation_is_the_public_function_bit_for_bit(strength):
    step = Perturbation(2.0, strength, "head").step(DIRECTION, WEIGHTS, ANCHOR)
    assert equal(step, perturbation(DIRECTION, WEIGHTS, ANCHOR, 2.0, strength))


def test_perturbation_leaves_its_inputs_alone():
    before = {name: tensor.clone() for name, tensor in WEIGHTS.items()}
    perturbation(DIRECTION, WEIGHTS, ANCHOR, 2.0, "adaptive")
    assert equal(WEIGHTS, before)


@pytest.mark.parametrize("proximal", [KL(3.0), L2()])
@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("where", ["all", "body", "head"])
def test_first_step_is_the_plain_gradient(proximal, strength, where):
    model = split(TwoLayers(bias=True), (2,))
    anchor = model.initial_weights()
    task, batch = task_for(model, anchor), random_batch((2,), 2)
    found, loss = perturbed(task, anchor, batch, proximal, Perturbation(2.0, strength, where))
    expected, expected_loss = plain(task, anchor, batch)
    assert equal(found, expected)
    assert torch.equal(loss, expected_loss)


@pytest.mark.parametrize("proximal", [KL(3.0), L2()])
@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("where", ["all", "body", "head"])
def test_rho_zero_is_bitwise_the_plain_gradient(proximal, strength, where):
    model = split(TwoLayers(bias=True), (2,))
    anchor = model.initial_weights()
    weights = moved_from(anchor)
    task, batch = task_for(model, anchor), random_batch((2,), 2)
    found, _ = perturbed(task, weights, batch, proximal, Perturbation(0.0, strength, where))
    assert equal(found, plain(task, weights, batch)[0])


def test_a_whole_step_by_hand_with_l2_and_fixed_strength():
    # Logits are the weights (input 1): w = (0.5, -0.5), a = (0.5, 0.5), so w - a = (0, -1) = g / ||g||.
    # rho = 2: w + eps = (0.5, -2.5); label 0: gradient = softmax - onehot = (p - 1, 1 - p), p = 1 / (1 + e^-3).
    model = split(OnlyHead(1, 2), (1,))
    task = task_for(model, {"head.weight": torch.tensor([[0.5], [0.5]])})
    batch = Batch(torch.ones(1, 1), torch.tensor([0]))
    found, loss = perturbed(
        task, {"head.weight": torch.tensor([[0.5], [-0.5]])}, batch, L2(), Perturbation(2.0, "fixed")
    )
    p = 1 / (1 + math.exp(-3))
    torch.testing.assert_close(found["head.weight"], torch.tensor([[p - 1], [1 - p]]))
    assert float(loss) == pytest.approx(-math.log(p))


def test_kl_by_hand():
    # z_a = (0, 0), z_w = (3 ln 3, 0), tau = 3: q = (1/2, 1/2), p = (3/4, 1/4);
    # KL(q || p) = 1/2 ln(1/2 / 3/4) + 1/2 ln(1/2 / 1/4) = 1/2 ln(4/3); gradient of z_w: (p - q) / tau = (1/12, -1/12).
    model = split(OnlyHead(1, 2), (1,))
    task = task_for(model, {"head.weight": torch.zeros(2, 1)})
    batch = Batch(torch.ones(1, 1), torch.tensor([0]))
    point = task.at({"head.weight": torch.tensor([[3 * math.log(3)], [0.0]])}, batch)
    assert float(KL(3.0).loss(point.outputs, point).detach()) == pytest.approx(0.5 * math.log(4 / 3))
    found = KL(3.0).gradient(point, "head")
    torch.testing.assert_close(found["head.weight"], torch.tensor([[1 / 12], [-1 / 12]]))


@pytest.mark.parametrize("proximal", [KL(3.0), L2()])
@pytest.mark.parametrize("size", [1.0, 1e-9])
def test_a_projected_gradient_has_nothing_left_along_a_proximal_gradient_of_any_length(proximal, size):
    # A step downhill: the local loss pulls on, the proximal one back.
    model = split(TwoLayers(bias=True).double(), (2,))
    anchor = model.initial_weights()
    task, batch = task_for(model, anchor), random_batch((2,), 2, dtype=torch.float64)
    weights = add(anchor, plain(task, anchor, batch)[0], -size)
    local, loss = plain(task, weights, batch)
    direction = proximal.gradient(task.at(weights, batch), "all")
    assert float(dot(local, direction)) < 0
    found, found_loss = projected(task, weights, batch, proximal)
    torch.testing.assert_close(found, add(local, direction, -float(dot(local, direction) / dot(direction, direction))))
    assert abs(float(dot(found, direction))) < 1e-12 * float(norm(local) * norm(direction))  # rounding of `local`
    assert torch.equal(found_loss, loss)


@pytest.mark.parametrize("make", [lambda anchor: KL(), lambda anchor: Contrastive(moved_from(anchor, seed=5))])
def test_a_pass_is_freed_unless_it_is_to_be_kept(make):
    model = split(TwoLayers(), (2,))
    anchor = model.initial_weights()
    task, weights, batch = task_for(model, anchor), moved_from(anchor), random_batch((2,), 2)
    kept, freed, proximal = task.at(weights, batch), task.at(weights, batch), make(anchor)
    assert equal(proximal.gradient(kept, "all", keep=True), proximal.gradient(freed, "all"))
    assert equal(kept.gradient()[0], plain(task, weights, batch)[0])
    with pytest.raises(RuntimeError, match="second time"):
        freed.gradient()


def two_pass(module, names, anchor, weights, batch, rho, strength, where_names):
    """Equations 5 to 8 written the long way: two whole passes through the model."""
    buffers = {name: tensor for name, tensor in anchor.items() if name not in names}

    def logits(values, training):
        module.train(training)
        return functional_call(module, {**values, **{n: b.clone() for n, b in buffers.items()}}, (batch.inputs,))

    leaves = {name: weights[name].clone().requires_grad_() for name in names}
    teacher = F.softmax(logits(pick(anchor, names), False).detach() / 3.0, dim=1)
    student = F.log_softmax(logits(leaves, True) / 3.0, dim=1)
    divergence = (teacher * (teacher.log() - student)).sum(dim=1).mean()
    direction = dict(zip(names, torch.autograd.grad(divergence, list(leaves.values())), strict=True))
    eps = perturbation(pick(direction, where_names), weights, anchor, rho, strength)
    moved = {name: (weights[name] + eps.get(name, 0)).requires_grad_() for name in names}
    loss = F.cross_entropy(logits(moved, True), batch.labels)
    return dict(zip(names, torch.autograd.grad(loss, list(moved.values())), strict=True))


@pytest.mark.parametrize("name", sorted(name for name, spec in MODELS.items() if spec.fits(DIGITS)))
def test_the_head_path_is_the_two_pass_form_for_every_model(name):
    shape = ModelShape(MODEL_SHAPES.get(name, (3, 32, 32)), 10)
    model = build_split_model(ModelSettings(name=name), shape, 0)
    anchor = model.initial_weights()
    weights = {**anchor, **moved_from(pick(anchor, model.names), size=0.01)}
    batch = random_batch(shape.input_shape, 10, count=4)
    task = task_for(model, anchor)
    found, _ = perturbed(task, pick(weights, model.names), batch, KL(3.0), Perturbation(2.0, "adaptive", "head"))
    expected = two_pass(
        build_model(name, {}, shape, 0),
        model.names,
        anchor,
        weights,
        batch,
        2.0,
        "adaptive",
        model.head_names,
    )
    scale = max(1.0, float(norm(expected)))
    for parameter, gradient in expected.items():
        torch.testing.assert_close(found[parameter], gradient, rtol=1e-4, atol=1e-6 * scale, msg=parameter)


@pytest.mark.parametrize("where", ["all", "body"])
def test_the_other_paths_are_the_two_pass_form(where):
    shape = ModelShape((1, 8, 8), 10)
    model = build_split_model(ModelSettings(name="small"), shape, 0)
    anchor = model.initial_weights()
    weights, batch = moved_from(anchor, size=0.01), random_batch((1, 8, 8), 10)
    found, _ = perturbed(task_for(model, anchor), weights, batch, KL(3.0), Perturbation(0.5, "fixed", where))
    names = model.names if where == "all" else model.body_names
    module = build_model("small", {}, shape, 0)
    expected = two_pass(module, model.names, anchor, weights, batch, 0.5, "fixed", names)
    scale = max(1.0, float(norm(expected)))
    for parameter, gradient in expected.items():
        torch.testing.assert_close(found[parameter], gradient, rtol=1e-4, atol=1e-6 * scale, msg=parameter)


def count_passes(model, monkeypatch):
    """Counts the passes through a model's body and head."""
    passes = {"features": 0, "logits": 0, "outputs": 0}
    for name in passes:
        original = getattr(model, name)

        def counted(*arguments, name=name, original=original):
            passes[name] += 1
            return original(*arguments)

        monkeypatch.setattr(model, name, counted)
    return passes


@pytest.mark.parametrize(
    ("proximal", "where", "bodies"),
    [(KL(), "head", 1), (L2(), "head", 1), (L2(), "all", 1), (KL(), "all", 2)],
)
def test_no_more_passes_than_needed(proximal, where, bodies, monkeypatch):
    model = split(TwoLayers(), (2,))
    anchor = model.initial_weights()
    passes = count_passes(model, monkeypatch)
    perturbed(
        task_for(model, anchor),
        moved_from(anchor),
        random_batch((2,), 2),
        proximal,
        Perturbation(2.0, "adaptive", where),
    )
    anchors = 1 if isinstance(proximal, KL) else 0
    assert passes["features"] + passes["outputs"] == bodies + anchors
