"""What every algorithm promises: one table of everything under test, one test for each promise."""

from dataclasses import dataclass

import pytest
import torch

import fedsol
from fedsol import Experiment
from fedsol.algorithms import make_algorithm
from fedsol.config.catalog import ALGORITHMS
from fedsol.core.files import read_tensors, sha256, tensors_to_bytes
from fedsol.core.weights import clone, pick
from fedsol.federation.federation import build_federation
from tests.support.cases import (
    ALIKE,
    CASES,
    LOOP,
    WITH_BATCH_NORM,
    every_case,
    experiment,
    federated_loop_cases,
    loop_cases,
)
from tests.support.runs import StopAfter, assert_same_run, trained
from tests.support.tensors import same_tensors
from tests.support.toys import WithBatchNorm, moved_from, random_batch, split, task_for


def test_every_registered_algorithm_is_under_test():
    assert {case.name for case in CASES} == set(ALGORITHMS)


def test_every_algorithm_goes_through_every_promise_of_the_loop():
    in_loop = {case.name for case in CASES if case.id in LOOP}
    assert in_loop | ALIKE.keys() == set(ALGORITHMS)
    assert in_loop >= set(ALIKE.values())
    assert {case.id for case in CASES} >= LOOP
    assert len({case.id for case in CASES}) == len(CASES)


@federated_loop_cases
def test_two_rounds_run_and_are_deterministic(case):
    first = trained(experiment(case.table))
    assert len(first.rows) == 2
    assert all(row["rejected"] == 0 for row in first.rows)
    assert set(first.rows[0]["client_ids"]) & set(first.rows[1]["client_ids"])
    assert all(bool(torch.isfinite(tensor).all()) for tensor in first.weights.values())
    assert_same_run(fedsol.train(experiment(case.table)), first)


@loop_cases
def test_a_run_resumed_from_disk_is_the_same(case, tmp_path):
    whole = trained(experiment(case.table, rounds=3))
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(experiment(case.table, rounds=3), [StopAfter(2)], tmp_path)
    assert_same_run(fedsol.train(experiment(case.table, rounds=3), out=tmp_path, resume=True), whole)


def trained_job(algorithm):
    """A model with running statistics, a task, and what a client makes of one step with states that are not zero."""
    model = split(WithBatchNorm(), (4,))
    weights = model.initial_weights()
    parameters, buffers = pick(weights, model.names), pick(weights, model.buffers)
    server = {name: tensor + 0.1 for name, tensor in algorithm.init_server(parameters).items()}
    own = {name: tensor * 1.5 for name, tensor in algorithm.init_client(parameters, buffers).items()}
    task = task_for(model, weights, momentum=0.9, labels=lambda: torch.tensor([0, 2, 2, 0, 2]))
    return task, moved_from(parameters), random_batch((4,), 3), server, own, algorithm.begin(task, server, own)


@every_case
def test_states_and_payloads_round_trip_through_serialization(case, tmp_path):
    algorithm = make_algorithm(case.table)
    task, weights, _, server, own, view = trained_job(algorithm)
    for state in (server, own, *algorithm.finish(task, weights, 3, view)):
        content = tensors_to_bytes(state)
        (tmp_path / "state").write_bytes(content)
        assert same_tensors(read_tensors(tmp_path / "state", sha256(content)), state)


@pytest.mark.parametrize("case", [case for case in CASES if case.degenerate is not None], ids=lambda case: case.id)
@pytest.mark.parametrize("model", ["mlp", "tests.support.user_code:with_batch_norm"])
def test_the_degenerate_case_is_a_simpler_method_bit_for_bit(case, model):
    changes = {"model__name": model, "model__options": {}}
    simpler = trained(experiment({"name": case.becomes}, **changes))
    found = fedsol.train(experiment({**case.table, **case.degenerate}, **changes))
    assert same_tensors(found.weights, simpler.weights)


@pytest.mark.parametrize("case", [case for case in CASES if case.fedavg_at_first], ids=lambda case: case.id)
def test_the_first_round_is_fedavgs_bit_for_bit(case):
    fedavg = trained(experiment({"name": "fedavg"}, rounds=1))
    assert same_tensors(fedsol.train(experiment(case.table, rounds=1)).weights, fedavg.weights)


NOT_FEDAVG = [case for case in CASES if case.degenerate != {} and case.name != "fedbn"]  # which is, without norms


@pytest.mark.parametrize("case", NOT_FEDAVG, ids=lambda case: case.id)
def test_with_its_own_settings_it_is_not_fedavg(case):
    fedavg = trained(experiment({"name": "fedavg"}, rounds=3))
    assert not same_tensors(trained(experiment(case.table, rounds=3)).weights, fedavg.weights)


@every_case
def test_a_gradient_touches_nothing_it_was_given(case):
    algorithm = make_algorithm(case.table)
    task, weights, batch, server, own, view = trained_job(algorithm)
    images = {"inputs": batch.inputs, "labels": batch.labels}
    given = [weights, task.anchor, task.anchor_buffers, server, own, view, images]
    before = [clone(tensors) for tensors in given]
    gradient, loss = algorithm.gradient(task, weights, batch, view)
    algorithm.finish(task, weights, 3, view)
    assert all(same_tensors(now, then) for now, then in zip(given, before, strict=True))
    assert gradient.keys() == weights.keys()
    assert not loss.requires_grad
    assert not any(tensor.requires_grad for tensor in (*weights.values(), *gradient.values()))


@federated_loop_cases
def test_it_works_with_batch_norm_and_dropout(case):
    run = trained(experiment(case.table, **WITH_BATCH_NORM))
    assert all(row["rejected"] == 0 for row in run.rows)
    if "2.running_mean" not in build_federation(run.experiment).exchange.kept:
        assert run.weights["2.running_mean"].abs().sum() > 0
    assert_same_run(fedsol.train(experiment(case.table, **WITH_BATCH_NORM)), run)


@federated_loop_cases
def test_it_works_with_one_client(case):
    run = fedsol.train(experiment(case.table, data__partition__clients=1, server__fraction=1.0))
    assert [row["clients"] for row in run.rows] == [1, 1]


@federated_loop_cases
@pytest.mark.parametrize("model", ["mlp", "tests.support.user_code:with_batch_norm"])
def test_it_works_with_a_client_of_one_sample(case, model):
    tables = experiment(case.table).model_dump(exclude_none=True)
    tables |= {
        "data": {"name": "tests.support.user_code:uneven_clients", "partition": {"kind": "own"}},
        "model": {"name": model},
    }
    run = fedsol.train(Experiment(**tables).override({"server.fraction": 1.0}))
    assert [(row["clients"], row["rejected"]) for row in run.rows] == [(3, 0), (3, 0)]


def with_server_optimizers():
    """Every pair; `make test` combines Adam with every method, and the others with each kind of state."""
    for name in sorted(ALGORITHMS.keys() - {"local-only"}):
        for optimizer in ("momentum", "adam", "yogi"):
            quick = name in ("fedavg", "scaffold", "feddyn") or (optimizer == "adam" and name not in ALIKE)
            yield pytest.param(name, optimizer, marks=[] if quick else [pytest.mark.full])


@pytest.mark.parametrize(("name", "optimizer"), list(with_server_optimizers()))
def test_every_server_optimizer_combines_with_every_method(name, optimizer, tmp_path):
    table = {"name": name}
    changes = {"server__optimizer": optimizer, "server__optimizer_lr": 0.1}
    whole = trained(experiment(table, **changes))
    assert not same_tensors(whole.weights, trained(experiment(table)).weights)
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(experiment(table, **changes), [StopAfter(1)], tmp_path)
    assert_same_run(fedsol.train(experiment(table, **changes), out=tmp_path, resume=True), whole)


@pytest.mark.parametrize(
    ("table", "part"),
    [
        ({"name": "moon", "usage": "perturbed", "perturb": "head"}, "does not depend on the head"),
        ({"name": "fednova", "usage": "perturbed"}, "set control = true"),
        ({"name": "fednova", "usage": "projected"}, "set control = true"),
    ],
)
def test_an_impossible_pairing_is_an_error_that_explains_why(table, part):
    with pytest.raises(fedsol.InputError, match=part):
        experiment(table)


@pytest.mark.parametrize("name", ["scaffold", "fednova"])
def test_methods_whose_formulas_need_sgd_say_so(name):
    with pytest.raises(fedsol.InputError, match=r"client\.optimizer: 'adam' is not allowed with"):
        experiment({"name": name}, client__optimizer="adam")
    with pytest.raises(fedsol.InputError, match=r"client\.optimizer: 'sgd' with nesterov is not allowed with"):
        experiment({"name": name}, client__optimizer_options={"nesterov": True})


@loop_cases
def test_every_client_can_make_the_model_its_own_on_every_engine(case):
    run = trained(experiment(case.table))
    found = fedsol.personalize(run, changes={"epochs": (1, 2)})
    assert [result.client for result in found.results] == [0, 1, 2, 3]
    assert all(outcome.accuracy is not None for result in found.results for outcome in result.after)
    again = fedsol.personalize(run, changes={"epochs": (1, 2)}, where={"engine.kind": "workers", "engine.workers": 2})
    assert again.results == found.results


@pytest.mark.parametrize("table", [{"name": "fedbabu"}, {"name": "fedsol", "perturb": "body"}, {"name": "scaffold"}])
@pytest.mark.parametrize("optimizer", ["average", "adam"])
def test_a_frozen_classifier_stays_what_it_was_bit_for_bit(table, optimizer):
    changes = {"client__weight_decay": 0.1, "server__optimizer": optimizer, "rounds": 3}
    if table["name"] != "fedbabu":
        changes["client__trains"] = "body"
    initial = build_federation(experiment(table, **changes)).initial_weights()
    run = fedsol.train(experiment(table, **changes))
    head = build_federation(experiment(table)).model.head_names
    assert [name for name, tensor in initial.items() if torch.equal(run.weights[name], tensor)] == list(head)


@pytest.mark.parametrize(
    "table",
    [
        {"name": "fedsol"},
        {"name": "fedsol", "strength": "adaptive"},
        {"name": "fedprox", "usage": "perturbed", "perturb": "head"},
        {"name": "fedsol-ablation", "strategy": "A3"},
    ],
)
def test_a_perturbation_of_a_frozen_classifier_is_refused(table):
    with pytest.raises(
        fedsol.InputError, match=r"client\.trains: 'body' is not allowed with algorithm\.perturb = 'head'"
    ):
        experiment(table, client__trains="body")
    experiment({**table, "perturb": "body"}, client__trains="body")
    experiment({**table, "strength": "fixed"}, client__trains="body")


def test_a_method_that_does_not_federate_has_rounds_without_clients():
    run = fedsol.train(experiment({"name": "local-only"}))
    assert [(row["clients"], row["client_ids"], row["bytes_down"], row["train_loss"]) for row in run.rows] == [
        (0, [], 0, None)
    ] * 2
    assert same_tensors(run.weights, build_federation(experiment({"name": "local-only"})).initial_weights())
    tables = experiment({"name": "local-only"}).model_dump(exclude_none=True)
    del tables["rounds"]
    assert build_federation(Experiment(**tables)).experiment.rounds == 1


@dataclass(frozen=True)
class Alone(fedsol.Algorithm):
    def personal_settings(self):
        return {"method": "local-only", "epochs": (1,)}


@dataclass(frozen=True)
class OldAlone(fedsol.Algorithm):
    federates = False


def test_a_users_method_says_by_its_personal_settings_that_it_does_not_federate():
    run = fedsol.train(experiment({"name": "tests.test_contract:Alone"}))
    assert [row["client_ids"] for row in run.rows] == [[]] * 2
    with pytest.raises(fedsol.InputError, match=r"^OldAlone\.federates: is not used; return method 'local-only'"):
        experiment({"name": "tests.test_contract:OldAlone"})
