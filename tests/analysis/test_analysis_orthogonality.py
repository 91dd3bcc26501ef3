"""Recording local steps: it changes nothing, and what it measures is what a hand calculation gives."""

from dataclasses import replace

import pytest
import torch

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.fedavg import FedAvg
from fedsol.algorithms.proximal import KL, L2
from fedsol.analysis.orthogonality import (
    LocalSteps,
    Measure,
    angle,
    own_measure,
    progress_curve,
    record,
    with_rho,
)
from fedsol.analysis.replay import Step, observed
from fedsol.core.messages import Job, ServerState
from fedsol.data.batches import Batch
from fedsol.errors import InputError
from fedsol.federation.federation import build_federation
from tests.support.cases import every_name
from tests.support.tensors import same_tensors
from tests.support.toys import OnlyHead, split, task_for


@pytest.mark.parametrize("model", ["small", "tests.support.user_code:with_batch_norm"])
@every_name
def test_a_recorded_client_trains_bitwise_alike(tiny, model, name):
    """Also with dropout and running statistics, which the observer's own passes could have moved."""
    federation = build_federation(tiny.override({"model.name": model, "algorithm.name": name}))
    initial = federation.initial_weights()
    parameters = {name: initial[name] for name in federation.model.names}
    buffers = {name: initial[name] for name in federation.model.buffers}
    rule = federation.algorithm
    server = ServerState(initial, federation.model.names, federation.clients, rule.init_server(parameters))
    job = Job(0, 1, initial, rule.broadcast(server), rule.init_client(parameters, buffers))
    plain = federation.train(job)
    steps, update = record(federation, Measure(), job)
    assert same_tensors(update.weights, plain.weights)
    assert same_tensors(update.state, plain.state)
    assert len(steps.cosine) == len(steps.proximal_loss) == len(steps.local_loss) == plain.steps
    assert steps.cosine[0] is None  # at the anchor the proximal gradient is 0
    assert steps.proximal_loss[0] == 0
    assert all(-1.0001 <= value <= 1.0001 for value in steps.cosine[1:])
    assert steps.proximal_loss[-1] > 0


def test_an_observed_algorithm_aggregates_as_it_did(tiny):
    federation = build_federation(tiny.override({"algorithm.name": "scaffold"}))
    rule = federation.algorithm
    initial = federation.initial_weights()
    server = ServerState(initial, federation.model.names, federation.clients, rule.init_server(initial))
    update = federation.train(Job(0, 1, initial, rule.broadcast(server), rule.init_client(initial, {})))
    shared = [replace(update, share=1.0)]
    twin = observed(rule, lambda step: None)
    assert twin.init_server(initial).keys() == server.state.keys()
    assert twin.init_client(initial, {}).keys() == rule.init_client(initial, {}).keys()
    assert same_tensors(twin.aggregate(server, shared).weights, rule.aggregate(server, shared).weights)


def step_at(weights, update):
    """Two weights that are the two logits, with an anchor of 0."""
    model = split(OnlyHead(1, 2).double(), (1,))
    task = task_for(model, {"head.weight": torch.zeros(2, 1, dtype=torch.float64)})
    batch = Batch(torch.ones(1, 1, dtype=torch.float64), torch.tensor([0]))
    as_column = [{"head.weight": torch.tensor(values, dtype=torch.float64)[:, None]} for values in (weights, update)]
    return Step(task, as_column[0], batch, as_column[1], torch.tensor(0.0))


def test_angle_and_loss_by_hand():
    cosine, loss = angle(step_at([3.0, 4.0], [1.0, 0.0]), L2(), "all")
    assert cosine == pytest.approx(3 / 5)
    assert loss == pytest.approx(12.5)
    # KL from a uniform teacher: log of the mean of exp minus the mean; its gradient is softmax - 1/2.
    cosine, loss = angle(step_at([3.0, 0.0], [1.0, 0.0]), KL(3.0), "all")
    assert cosine == pytest.approx(2**-0.5)
    assert loss == pytest.approx(
        float(torch.logaddexp(torch.tensor(1.0), torch.tensor(0.0))) - 0.5 - 0.6931472, abs=1e-6
    )


def test_weights_that_are_not_trained_have_no_part_in_the_angle():
    step = step_at([3.0, 4.0], [1.0, 0.0])
    for where in ("all", "head"):
        assert angle(step, L2(), where, ["head.weight"]) == (None, 12.5)


def test_a_frozen_head_does_not_move_while_it_is_recorded(tiny):
    federation = build_federation(tiny.override({"client.trains": "body"}))
    initial = federation.initial_weights()
    fedavg = replace(federation, algorithm=FedAvg())
    steps, update = record(fedavg, Measure(where="head"), Job(0, 1, initial, {}))
    assert same_tensors(*({name: w[name] for name in federation.untrained} for w in (initial, update.weights)))
    assert set(steps.cosine) == {None}
    assert steps.proximal_loss[-1] > 0


def test_an_update_of_zero_has_no_angle():
    assert angle(step_at([1.0, 0.0], [0.0, 0.0]), L2(), "all")[0] is None


def test_the_measure_is_the_methods_own_loss_where_it_has_one():
    assert own_measure(FedAvg()) == Measure("kl", 3.0, "all")
    fedsol = make_algorithm({"name": "fedsol", "proximal": "not-true-kl", "tau": 1.0})
    assert own_measure(fedsol, "head") == Measure("not-true-kl", 1.0, "head")
    assert own_measure(make_algorithm({"name": "moon"})) == Measure()  # a tau of another loss is not KL's


def test_rho_is_replaced_only_where_something_is_perturbed():
    assert with_rho(make_algorithm({"name": "fedsam"}), 0.25).rho == 0.25
    with pytest.raises(InputError, match="--rho: is not allowed for a run of FedAvg"):
        with_rho(FedAvg(), 1.0)
    with pytest.raises(InputError, match="perturbs nothing"):
        with_rho(make_algorithm({"name": "fedsol", "usage": "auxiliary"}), 1.0)
    with pytest.raises(InputError, match=r"--rho: must be 0 or more \(got -1.0\)"):
        with_rho(make_algorithm({"name": "fedsol"}), -1.0)


def test_clients_with_different_numbers_of_steps_share_an_axis():
    curve = progress_curve("a", [[None, 1.0], [1.0, 2.0, 3.0, 4.0], []], 4)
    assert curve.rounds == [0.125, 0.375, 0.625, 0.875]
    assert curve.values == [[None, None, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0], [None] * 4]


def test_the_mean_angle_leaves_out_steps_without_one():
    assert LocalSteps(0, (None, 0.5, -0.1), (), ()).mean_cosine == pytest.approx(0.2)
    assert LocalSteps(0, (None,), (), ()).mean_cosine is None
