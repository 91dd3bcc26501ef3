"""What the paper proves, checked with numbers: the toy example's fixed points and propositions 1 and 2."""

import pytest
import torch

from fedsol.algorithms.gradients import Perturbation, perturbed, plain
from fedsol.algorithms.proximal import KL, L2
from fedsol.core.weights import add, dot, norm, scale
from fedsol.data.batches import Batch
from tests.support.toys import OnlyHead, moved_from, random_batch, split, task_for

DELTA = 0.1
LOCAL_MINIMUM = torch.tensor([2.0, 1.0], dtype=torch.float64)


def toy_task():
    """Two weights, an anchor at 0, and the local loss `(u - u_l)^2 / 2 + delta (v - v_l)^2 / 2`."""

    def local_loss(outputs, point):
        away = outputs.logits[0] - LOCAL_MINIMUM
        return 0.5 * away[0] ** 2 + 0.5 * DELTA * away[1] ** 2

    model = split(OnlyHead(1, 2).double(), (1,))
    return task_for(model, {"head.weight": torch.zeros(2, 1, dtype=torch.float64)}, local_loss=local_loss)


def descend(rule, steps=20_000, lr=0.02):
    task = toy_task()
    batch = Batch(torch.ones(1, 1, dtype=torch.float64), torch.tensor([0]))
    weights = {"head.weight": torch.ones(2, 1, dtype=torch.float64)}
    for _ in range(steps):
        weights = add(weights, rule(task, weights, batch), -lr)
    return weights["head.weight"].flatten()


def test_fedsol_keeps_the_direction_and_shortens_by_rho():
    rho = 0.5
    found = descend(lambda task, w, batch: perturbed(task, w, batch, L2(), Perturbation(rho, "fixed"))[0], steps=6_000)
    distance = LOCAL_MINIMUM.norm()
    torch.testing.assert_close(found, LOCAL_MINIMUM * (distance - rho) / distance, rtol=1e-4, atol=1e-4)


def test_an_auxiliary_proximal_loss_turns_the_direction():
    mu = 0.5

    def rule(task, weights, batch):
        local, _ = plain(task, weights, batch)
        return add(local, L2().gradient(task.at(weights, batch), "all"), mu)

    expected = torch.stack([LOCAL_MINIMUM[0] / (1 + mu), DELTA * LOCAL_MINIMUM[1] / (DELTA + mu)])
    torch.testing.assert_close(descend(rule, steps=3_000), expected, rtol=1e-4, atol=1e-4)


@pytest.fixture
def convex():
    """Softmax regression: its local loss has a positive semi-definite Hessian everywhere."""
    model = split(OnlyHead(4, 3).double(), (4,))
    anchor = model.initial_weights()
    task = task_for(model, anchor)
    return task, moved_from(anchor, size=0.5), random_batch((4,), 3, count=20, dtype=torch.float64)


def hessian_times(task, weights, batch, vector, step=1e-5):
    """`H v` by a central difference of gradients."""
    ahead, _ = plain(task, add(weights, vector, step), batch)
    behind, _ = plain(task, add(weights, vector, -step), batch)
    return scale(add(ahead, behind, -1.0), 1 / (2 * step))


def proximal_value(task, weights, batch):
    point = task.at(weights, batch)
    return KL(3.0).loss(point.outputs, point).detach()


def local_value(task, weights, batch):
    point = task.at(weights, batch)
    return task.local_loss(point.outputs, point).detach()


def directions(task, weights, batch):
    local, _ = plain(task, weights, batch)
    proximal = KL(3.0).gradient(task.at(weights, batch), "all")
    return local, proximal, scale(proximal, 1 / float(norm(proximal)))


def test_proposition_1_the_change_of_the_proximal_loss(convex):
    task, weights, batch = convex
    local, proximal, unit = directions(task, weights, batch)
    curvature = dot(unit, hessian_times(task, weights, batch, proximal))
    assert float(curvature) >= 0  # positive semi-definite: FedSOL's update lowers the conflict

    def error(rho, lr):
        update, _ = perturbed(task, weights, batch, KL(3.0), Perturbation(rho, "fixed"))
        change = proximal_value(task, add(weights, update, -lr), batch) - proximal_value(task, weights, batch)
        return abs(float(change + lr * (dot(local, proximal) + rho * curvature))) / lr

    # The error is O(rho^2 + lr): four times smaller when rho is halved and lr quartered.
    assert error(0.05, 0.005) < error(0.1, 0.02) / 3.5
    assert error(0.01, 1e-4) < 1e-3 * abs(float(dot(local, proximal)))


def test_proposition_1_the_conflict_shrinks_as_rho_grows(convex):
    task, weights, batch = convex
    _, proximal, _ = directions(task, weights, batch)
    products = [
        float(dot(perturbed(task, weights, batch, KL(3.0), Perturbation(rho, "fixed"))[0], proximal))
        for rho in (0.0, 0.1, 0.2, 0.4)
    ]
    assert products == sorted(products)


def test_proposition_2_the_change_of_the_local_loss_is_fedavgs_half_a_perturbation_away(convex):
    task, weights, batch = convex
    _, _, unit = directions(task, weights, batch)

    def error(rho, lr):
        update, _ = perturbed(task, weights, batch, KL(3.0), Perturbation(rho, "fixed"))
        fedsol = local_value(task, add(weights, update, -lr), batch) - local_value(task, weights, batch)
        half_way = add(weights, unit, rho / 2)
        gradient, _ = plain(task, half_way, batch)
        fedavg = local_value(task, add(half_way, gradient, -lr), batch) - local_value(task, half_way, batch)
        return abs(float(fedsol - fedavg)) / lr

    assert error(0.05, 1e-6) < error(0.1, 1e-6) / 3.5  # O(rho^2) once lr is negligible
    assert error(0.01, 1e-4) < 1e-3


def test_fedsol_with_the_local_loss_is_sam(convex):
    """With the local loss itself as the proximal one and a fixed strength, FedSOL is SAM."""
    from fedsol.algorithms.proximal import OutputLoss

    class Local(OutputLoss):
        def loss(self, outputs, point):
            return point.task.local_loss(outputs, point)

    task, weights, batch = convex
    found, _ = perturbed(task, weights, batch, Local(), Perturbation(0.3, "fixed"))
    local, _ = plain(task, weights, batch)
    expected, _ = plain(task, add(weights, local, 0.3 / float(norm(local))), batch)
    torch.testing.assert_close(found, expected)
