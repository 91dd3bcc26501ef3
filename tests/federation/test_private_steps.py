"""DP-SGD: gradients of samples are Opacus's, clipped and noised by hand, and each client has its own account."""

import warnings
from dataclasses import replace
from itertools import islice

import pytest
import torch
from torch import nn

import fedsol
from fedsol.core.messages import Job
from fedsol.core.weights import norm, pick
from fedsol.data.batches import Batch
from fedsol.errors import InputError
from fedsol.federation.federation import build_federation
from fedsol.federation.private_steps import (
    PrivateSteps,
    clipped_total,
    random_batches,
    sample_gradients,
    secret_steps,
    simulated_steps,
)
from fedsol.privacy.accounting import Mechanism
from fedsol.privacy.noise import SIMULATED
from fedsol.training.private import plan_privacy, with_privacy
from fedsol.training.private_samples import PrivateSamples
from tests.support.cases import experiment
from tests.support.runs import StopAfter, assert_same_run, trained
from tests.support.toys import split, task_for


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3, stride=2), nn.Tanh())
        self.head = nn.Linear(6 * 3 * 3, 5)

    def forward(self, inputs):
        return self.head(self.body(inputs).flatten(1))


class Asking(SmallCNN):
    """Looks at the values of its inputs, as transformers do at their masks: nothing for vmap."""

    def forward(self, inputs):
        return super().forward(inputs if inputs.max() > 0 else 2 * inputs)


@pytest.fixture(scope="module")
def small():
    generator = torch.Generator().manual_seed(0)
    model = split(SmallCNN(), (1, 8, 8))
    weights = model.initial_weights()
    batch = Batch(torch.randn(9, 1, 8, 8, generator=generator), torch.randint(5, (9,), generator=generator))
    return task_for(model, weights), weights, batch


def test_gradients_of_samples_and_their_clipped_sum_are_those_of_opacus(small):
    task, weights, batch = small
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer

        twin = SmallCNN()
        twin.load_state_dict(weights)
        wrapped = GradSampleModule(twin, loss_reduction="mean")
        optimizer = DPOptimizer(
            torch.optim.SGD(wrapped.parameters(), lr=1.0),
            noise_multiplier=0.0,
            max_grad_norm=0.7,
            expected_batch_size=9,
        )
        expected = nn.functional.cross_entropy(wrapped(batch.inputs), batch.labels)
        expected.backward()
        theirs = {name: p.grad_sample.clone() for name, p in twin.named_parameters()}
        optimizer.clip_and_accumulate()
    found, loss = sample_gradients(task, weights, batch)
    assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-6)
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(found[name], theirs[name], rtol=0, atol=1e-6)
        torch.testing.assert_close(clipped_total(found, 0.7)[name], parameter.summed_grad, rtol=0, atol=1e-6)


def test_gradients_of_samples_are_those_of_batches_of_one(small):
    task, weights, batch = small
    found, _ = sample_gradients(task, weights, batch)
    total = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    for number in range(len(batch)):
        one, _ = task.at(
            weights, Batch(batch.inputs[number : number + 1], batch.labels[number : number + 1])
        ).gradient()
        for name in one:
            torch.testing.assert_close(found[name][number], one[name], rtol=0, atol=1e-6)
            total[name] += one[name] * min(1.0, 0.5 / float(norm(one)))
    torch.testing.assert_close(clipped_total(found, 0.5), total, rtol=0, atol=1e-6)


def test_what_vmap_cannot_follow_has_the_same_gradients(small):
    task, weights, batch = small
    asking = task_for(split(Asking(), (1, 8, 8)), weights)
    expected, found = (sample_gradients(one, weights, batch) for one in (task, asking))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        sample_gradients(asking, weights, replace(batch, inputs=batch.inputs[:, :, :3]))


def test_replacing_a_sample_changes_the_sum_by_at_most_twice_the_norm(small):
    task, weights, batch = small
    other = Batch(torch.cat([batch.inputs[:-1], 50 * batch.inputs[-1:]]), batch.labels)
    sums = [clipped_total(sample_gradients(task, weights, one)[0], 0.1) for one in (batch, other)]
    difference = float(norm({name: sums[0][name] - sums[1][name] for name in sums[0]}))
    assert 0 < difference <= 0.2 * (1 + 1e-5)


def test_the_noise_is_on_the_sum_and_fedprox_adds_its_own_term(small):
    task, weights, batch = small
    moved = {name: tensor + 0.01 for name, tensor in weights.items()}
    ones = PrivateSteps(0.5, 3.0, lambda shape: torch.ones(tuple(shape), dtype=torch.float64), choose=torch.empty)
    fedavg, fedprox = (fedsol.algorithms.make_algorithm({"name": n}) for n in ("fedavg", "fedprox"))
    total = clipped_total(sample_gradients(task, moved, batch)[0], 0.5)
    plain, _ = ones.gradient(fedavg, task, moved, batch, {})
    close, _ = ones.gradient(fedprox, task, moved, batch, {})
    for name in weights:
        torch.testing.assert_close(plain[name], (total[name] + 1.5) / 9)
        torch.testing.assert_close(close[name], plain[name] + fedprox.mu * (moved[name] - weights[name]))


def test_batches_are_of_one_size_and_drawn_anew():
    federation = build_federation(experiment({"name": "fedavg"}))
    indices = federation.training_samples(0)[:10]
    job = Job(0, 1, {})
    for steps_of in (simulated_steps, secret_steps):
        choose = steps_of(experiment({"name": "fedavg"}, **EXAMPLE), job).choose
        for size, expected in ((4, [4] * 6), (99, [10] * 6)):
            generator = torch.Generator().manual_seed(0)
            stream = random_batches(federation.dataset, indices, size, choose, generator, torch.device("cpu"))
            found = list(islice(stream, 6))
            assert [len(batch) for batch in found] == expected
            assert not torch.equal(found[0].inputs, found[1].inputs)
        assert not list(random_batches(federation.dataset, indices[:0], 4, choose, generator, torch.device("cpu")))


EXAMPLE = {"privacy__level": "example", "privacy__noise_multiplier": 1.5, "client__epochs": 1, "rounds": 3}


def test_every_client_has_an_account_and_the_row_has_the_largest():
    settings = experiment({"name": "fedprox"}, **EXAMPLE, server__fraction=0.5)
    run, federation = trained(settings), build_federation(settings)
    jobs = [0, 0, 0, 0]
    largest = 0.0
    for row in run.rows:
        for client, spent in zip(row["client_ids"], row["client_epsilon"], strict=True):
            jobs[client] += 1
            samples = len(federation.training_samples(client))
            steps = jobs[client] * -(-samples // 50)
            assert spent == Mechanism(min(50, samples), samples, 1.5).epsilon(steps, 1e-5)
            largest = max(largest, spent)
        assert row["epsilon"] == largest
        assert (row["unit"], row["noise"]) == ("sample", SIMULATED)
    assert [row["epsilon_next"] for row in run.rows[:2]] == [row["epsilon"] for row in run.rows[1:]]


def test_workers_and_a_killed_run_are_bitwise_the_same(tmp_path):
    settings = experiment({"name": "fedavg"}, **EXAMPLE)
    assert_same_run(fedsol.train(settings.override({"engine.kind": "workers", "engine.workers": 2})), trained(settings))
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(settings, [StopAfter(2)], out=tmp_path)
    assert_same_run(fedsol.train(settings, out=tmp_path, resume=True), trained(settings))


def test_epsilon_is_solved_for_the_client_that_spends_most():
    solved = {**EXAMPLE, "privacy__epsilon": 4, "privacy__noise_multiplier": None}
    run = fedsol.train(experiment({"name": "fedavg"}, **solved))
    assert 0.99 * 4 < run.rows[-1]["epsilon"] <= 4
    assert len(run.rows) == 3


def test_a_run_stops_before_the_round_that_would_exceed_the_budget_of_a_client():
    whole = trained(experiment({"name": "fedavg"}, **EXAMPLE))
    settings = experiment({"name": "fedavg"}, **EXAMPLE, privacy__epsilon=whole.rows[1]["epsilon"])
    short = fedsol.train(settings)
    assert [row["epsilon"] for row in short.rows] == [row["epsilon"] for row in whole.rows[:2]]
    assert "privacy.epsilon" in short.stopped.reason


@pytest.mark.parametrize(
    ("table", "changes", "message"),
    [
        ({"name": "fedsol"}, {}, "privacy.level: 'example' is not allowed with fedsol; allowed: fedavg, and fedprox"),
        ({"name": "fedprox", "usage": "perturbed"}, {}, "not allowed with fedprox with usage = 'perturbed'"),
        ({"name": "fedavg"}, {"privacy__clip_norm": "adaptive"}, "clip_norm: 'adaptive' is not allowed with level"),
        ({"name": "fedavg"}, {"task__class_weights": "balanced"}, "task.class_weights: must not be set"),
        ({"name": "fedavg"}, {"data__validation": 0.2}, "data.validation_by: 'client' is not allowed with"),
        ({"name": "fedavg"}, {"privacy__epsilon": 1e-3}, "privacy.epsilon: must be at least"),
    ],
)
def test_what_would_not_be_covered_is_refused(table, changes, message):
    with pytest.raises(InputError, match=message):
        with_privacy(build_federation(experiment(table, **{**EXAMPLE, **changes})))


def test_untrained_weights_stay():
    settings = experiment({"name": "fedavg"}, **EXAMPLE, client__trains="body")
    run, federation = trained(settings), build_federation(settings)
    head = federation.model.head_names
    torch.testing.assert_close(pick(run.weights, head), pick(federation.initial_weights(), head), rtol=0, atol=0)


def test_a_sample_whose_gradient_is_not_finite_adds_nothing(small):
    task, weights, batch = small
    wild = Batch(batch.inputs.clone(), batch.labels)
    wild.inputs[0] = float("nan")
    found, _ = sample_gradients(task, weights, wild)
    rest = {name: tensor[1:] for name, tensor in found.items()}
    torch.testing.assert_close(clipped_total(found, 0.5), clipped_total(rest, 0.5))


def test_the_estimate_says_what_each_sample_will_spend():
    settings = experiment({"name": "fedavg"}, **EXAMPLE, server__fraction=1.0)
    planned = plan_privacy(settings, [120, 60, 300, 50], {})
    largest = max(Mechanism(min(50, n), n, 1.5).epsilon(3 * -(-n // 50), 1e-5) for n in (120, 60, 300, 50))
    assert f"3 rounds spend epsilon = {largest:.4g} of any sample at delta = 1e-05" in planned
    assert "Neighbors differ in one sample of a client" in planned


def test_a_client_without_samples_spends_nothing():
    settings = experiment({"name": "fedavg"}, **EXAMPLE, server__fraction=1.0)
    assert PrivateSamples(settings, [0, 60]).epsilon_after(1) == Mechanism(50, 60, 1.5).epsilon(2, 1e-5)


def test_the_account_of_a_solved_run_is_kept_over_more_rounds_which_say_so(tmp_path, caplog):
    settings = experiment({"name": "fedavg"}, **EXAMPLE)
    fedsol.train(settings, out=tmp_path)
    caplog.clear()
    run = fedsol.train(settings.override({"rounds": 4}), out=tmp_path, resume=True)
    assert_same_run(run, trained(settings.override({"rounds": 4})))
    assert f"epsilon at most {run.rows[-1]['epsilon']:.4g} after 4 rounds" in caplog.text
    assert f"{run.rows[2]['epsilon']:.4g} of it is spent" in caplog.text


def test_running_statistics_are_refused_in_a_step_too(small):
    task, weights, batch = small
    steps = PrivateSteps(0.5, 3.0, torch.zeros, choose=torch.empty)
    with pytest.raises(InputError, match="running statistics"):
        steps.gradient(fedsol.Algorithm(), replace(task, buffers={"mean": torch.zeros(1)}), weights, batch, {})
