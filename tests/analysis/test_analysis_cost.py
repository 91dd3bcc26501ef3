"""FLOPs by hand, the paper's multiples, and memory counted tensor by tensor."""

import numpy as np
import pytest
import torch

from fedsol.algorithms import make_algorithm
from fedsol.analysis.cost import LocalStep, costs, flops, random_batch, without_data
from fedsol.config.experiment import Experiment
from fedsol.core.memory import peak_bytes


@pytest.fixture(scope="module")
def found():
    """The paper's CNN on CIFAR-10's shapes, without CIFAR-10."""
    federation = without_data(Experiment(data={"name": "cifar10"}, client={"batch_size": 2}))
    return costs(federation, repetitions=1)


def test_flops_of_a_linear_model_by_hand():
    experiment = Experiment(
        data={"name": "digits"}, model={"name": "mlp", "options": {"hidden": 7}}, client={"batch_size": 3}
    )
    found = costs(without_data(experiment), {"fedavg": make_algorithm({"name": "fedavg"})}, repetitions=1)
    forward = 2 * 3 * (64 * 7 + 7 * 7 + 7 * 10)
    backward = 2 * forward - 2 * 3 * 64 * 7  # the input itself needs no gradient
    assert found.methods[0].flops == forward + backward
    assert found.parameters == 64 * 7 + 7 + 7 * 7 + 7 + 7 * 10 + 10
    assert found.batch_size == 3


def test_the_papers_multiples(found):
    """All 2x + delta, body 1.96x + delta, head 1.33x + delta, for a backward pass of twice a forward one.

    The first layer needs no gradient of its input, so that a forward pass is 0.35 of a step, not a third.
    """
    base = found.methods[0].flops
    rows = {row.method: row for row in found.methods}
    multiple = {name: (row.two_pass_flops - row.proximal_flops) / base for name, row in rows.items()}
    assert multiple["fedsol (all)"] == pytest.approx(2.0, abs=0.01)
    assert multiple["fedsol (body)"] == pytest.approx(2.0, abs=0.01)
    assert multiple["fedsol (head)"] == pytest.approx(1.35, abs=0.01)
    assert multiple["fedsam"] == pytest.approx(2.0)
    assert rows["fedsol (head)"].proximal_flops / base == pytest.approx(0.35, abs=0.01)
    assert rows["fedsol (head, L2)"].proximal_flops == 0


def test_fedsol_computes_the_head_with_one_pass(found):
    ratio = {row.method: row.flops / found.methods[0].flops for row in found.methods}
    assert ratio["fedavg"] == 1.0
    assert ratio["fedsol (head)"] == pytest.approx(1.35, abs=0.01)
    assert ratio["fedsol (head, L2)"] == pytest.approx(1.0, abs=0.01)
    assert ratio["fedntd"] == pytest.approx(1.35, abs=0.01)
    assert ratio["fedprox"] == 1.0


def test_memory_and_state(found):
    rows = {row.method: row for row in found.methods}
    model = 4 * found.parameters
    assert rows["fedavg"].state_bytes == rows["fedsol (head)"].state_bytes == 0
    assert rows["scaffold"].state_bytes == model
    assert rows["moon"].state_bytes == model
    assert rows["fedavg"].peak_bytes > model  # a gradient for every weight
    assert rows["fedsam"].peak_bytes >= rows["fedavg"].peak_bytes + model
    assert rows["fedsol (head)"].peak_bytes < 1.05 * rows["fedavg"].peak_bytes
    assert all(row.seconds > 0 for row in found.methods)


@pytest.mark.parametrize(
    "table",
    [
        {"name": "fedsol"},
        {"name": "perturbed"},
        {"name": "perturbed", "direction": "local", "correction": "dynamic"},
        {"name": "fedsol-ablation", "strategy": "A3"},
    ],
    ids=lambda table: "-".join(table.values()),
)
def test_both_forms_give_the_same_gradient(table):
    federation = without_data(Experiment(client={"batch_size": 5}))
    federation.model.train(True)
    step = LocalStep(federation, make_algorithm(table), random_batch(federation))
    one, two = step.gradient()[0], step.two_pass_gradient()[0]
    torch.testing.assert_close(one, two)
    assert flops(step.two_pass_gradient) > 1.2 * flops(step.gradient)


def test_the_point_of_the_grid_that_is_fedsol_costs_the_same():
    federation = without_data(Experiment(client={"batch_size": 5}))
    named, point = costs(federation, {n: make_algorithm({"name": n}) for n in ("fedsol", "perturbed")}, 1).methods[1:]
    assert named.proximal_flops > 0
    for column in ("flops", "two_pass_flops", "proximal_flops"):
        assert getattr(point, column) == getattr(named, column)


def test_peak_memory_by_hand():
    def action():
        first = torch.zeros(100)  # 400 bytes
        second = first + 1  # 800
        del first
        third = second[:50] * 2  # 400 + 200: a view costs nothing
        return torch.cat([third, third])  # 400 + 200 + 400

    assert peak_bytes(action) == 1000
    before = torch.zeros(1000)
    assert peak_bytes(lambda: before.add_(1)) == 0  # what was there is not counted


def test_memory_kept_for_the_backward_pass_counts():
    weight = torch.ones(50, requires_grad=True)
    assert peak_bytes(lambda: (weight.exp() * weight.exp()).sum()) >= 2 * 200


def test_own_data_has_to_be_there_for_its_shape(tmp_path):
    np.savez(tmp_path / "own.npz", x_train=np.zeros((4, 5), np.float32), y_train=np.array([0, 1] * 2))
    federation = without_data(Experiment(data={"name": str(tmp_path / "own.npz"), "test_fraction": 0.5}))
    assert (federation.clients, federation.dataset.input_shape, federation.dataset.classes) == (0, (5,), 2)


def test_a_federation_without_data_has_the_shape_of_the_dataset():
    federation = without_data(Experiment(data={"name": "imagenet100"}, model={"name": "resnet18"}))
    assert federation.dataset.input_shape[0] == 3
    assert federation.dataset.classes == 100
    assert federation.clients == 0
