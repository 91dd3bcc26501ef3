"""Points share passes; running statistics follow the unperturbed pass only."""

import pytest
import torch

from fedsol.algorithms.gradients import Perturbation, perturbed, plain
from fedsol.algorithms.proximal import KL, L2
from fedsol.core.weights import clone, equal, pick
from tests.support.toys import OnlyHead, TwoLayers, WithBatchNorm, moved_from, random_batch, split, task_for


@pytest.fixture
def normed():
    model = split(WithBatchNorm(), (4,))
    model.train(True)
    anchor = model.initial_weights()
    weights = moved_from(pick(anchor, model.names))
    return model, anchor, weights, random_batch((4,), 3)


@pytest.mark.parametrize("proximal", [KL(), L2()])
@pytest.mark.parametrize("where", ["all", "body", "head"])
@pytest.mark.parametrize("at_anchor", [True, False])
def test_running_statistics_are_those_of_one_unperturbed_pass(normed, proximal, where, at_anchor):
    model, anchor, weights, batch = normed
    weights = pick(anchor, model.names) if at_anchor else weights
    reference, task = task_for(model, anchor), task_for(model, anchor)
    plain(reference, weights, batch)
    perturbed(task, weights, batch, proximal, Perturbation(5.0, "fixed", where))
    assert not equal(reference.buffers, reference.anchor_buffers)
    assert equal(task.buffers, reference.buffers)


def test_the_anchor_is_in_evaluation_mode_with_its_own_statistics(normed):
    model, anchor, weights, batch = normed
    task = task_for(model, anchor)
    plain(task, weights, batch)  # moves the client's statistics away from the anchor's
    found = task.at(weights, batch).anchor_outputs.logits
    model.train(False)
    expected = model.outputs(anchor, batch.inputs)[1]
    assert torch.equal(found, expected.detach())


def test_a_gradient_touches_nothing_it_was_given(normed):
    model, anchor, weights, batch = normed
    task = task_for(model, anchor)
    before = clone(weights), clone(task.anchor), clone(task.anchor_buffers), batch.inputs.clone()
    perturbed(task, weights, batch, KL(), Perturbation(2.0, "adaptive"))
    assert equal(weights, before[0])
    assert equal(task.anchor, before[1])
    assert equal(task.anchor_buffers, before[2])
    assert torch.equal(batch.inputs, before[3])
    assert all(not tensor.requires_grad and tensor.grad is None for tensor in weights.values())


def test_two_gradients_of_one_pass():
    model = split(TwoLayers(), (2,))
    anchor = model.initial_weights()
    weights, batch = moved_from(anchor), random_batch((2,), 2)
    task = task_for(model, anchor)
    here = task.at(weights, batch)
    local, _ = here.gradient(keep=True)
    proximal = KL().gradient(here, "all")
    assert equal(local, task.at(weights, batch).gradient()[0])
    assert equal(proximal, KL().gradient(task.at(weights, batch), "all"))


def test_a_step_of_the_head_shares_the_body_and_another_does_not():
    model = split(TwoLayers(), (2,))
    anchor = model.initial_weights()
    here = task_for(model, anchor).at(moved_from(anchor), random_batch((2,), 2))
    head_step = {"head.weight": torch.ones(2, 2)}
    assert here.moved(head_step).features is here.features
    assert here.moved({"body.weight": torch.ones(2, 2)}).features is not here.features


def test_a_parameter_that_the_loss_does_not_reach_has_gradient_zero():
    model = split(TwoLayers(), (2,))
    anchor = model.initial_weights()
    point = task_for(model, anchor).at(anchor, random_batch((2,), 2))
    found, _ = point.gradient(lambda outputs, _: outputs.features.sum())
    assert torch.equal(found["head.weight"], torch.zeros(2, 2))


def test_a_batch_of_one_goes_through_a_batch_norm_with_running_statistics(normed):
    model, anchor, weights, _ = normed
    task = task_for(model, anchor)
    batch = random_batch((4,), 3, count=1)
    found, loss = plain(task, weights, batch)
    assert bool(torch.isfinite(loss))
    assert equal(task.buffers, task.anchor_buffers)
    assert float(found["head.bias"].abs().sum()) > 0
    plain(task, weights, random_batch((4,), 3))
    assert not equal(task.buffers, task.anchor_buffers)


def test_a_part_without_parameters_is_named():
    task = task_for(split(OnlyHead(1, 2), (1,)), {"head.weight": torch.zeros(2, 1)})
    with pytest.raises(ValueError, match="this model has no parameters in its body"):
        task.names("body")
