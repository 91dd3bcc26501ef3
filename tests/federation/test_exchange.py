"""Weights that stay with their clients: what travels, who has what, and what is tested."""

import logging

import pytest
import torch

import fedsol
from fedsol.core.messages import Job
from fedsol.core.weights import prefixed, size_in_bytes, without_prefix
from fedsol.errors import InputError
from fedsol.federation.exchange import AT_HOME
from fedsol.federation.federation import build_federation
from fedsol.federation.personal import fine_tuned, resolve_settings
from fedsol.models.exchange import kept_names
from fedsol.runs.run import Run
from tests.support.cases import WITH_BATCH_NORM, experiment
from tests.support.runs import StopAfter, assert_same_run, trained
from tests.support.tensors import same_tensors

METHODS = ("fedper", "fedrep", "lg-fedavg", "fedbn")
HEAD = {"head.weight", "head.bias"}


def settings(name, **changes):
    return experiment({"name": name}, **{**WITH_BATCH_NORM, "rounds": 3, "data__partition__held_out": 0.25, **changes})


def split_model(name="mlp"):
    return build_federation(experiment({"name": "fedavg"}, model__name=name, model__options={})).model


def test_which_weights_are_kept_by_words_and_patterns():
    mlp, norms = split_model(), split_model(WITH_BATCH_NORM["model__name"])
    every = set(mlp.initial_weights())
    assert kept_names(mlp, "all", "here") == frozenset()
    assert kept_names(mlp, "none", "here") == every
    assert kept_names(mlp, "body", "here") == HEAD
    assert kept_names(mlp, "head", "here") == every - HEAD
    assert kept_names(mlp, "not-norms", "here") == frozenset()
    assert kept_names(mlp, r"\.bias$", "here") == {name for name in every if name.endswith("weight")}
    of_norm = {"2.weight", "2.bias", "2.running_mean", "2.running_var", "2.num_batches_tracked"}
    assert kept_names(norms, "not-norms", "here") == of_norm
    assert kept_names(norms, "body", "here") == {"5.weight", "5.bias"}
    assert kept_names(norms, "head", "here") == of_norm | {"1.weight", "1.bias"}
    with pytest.raises(InputError, match=r"here: 'neck' matches no weight; they are .*head\.bias"):
        kept_names(mlp, "neck", "here")


@pytest.mark.parametrize("name", METHODS)
def test_what_is_kept_does_not_travel_and_is_the_clients_own(name):
    run = trained(settings(name))
    federation = build_federation(run.experiment)
    initial, kept = federation.initial_weights(), federation.exchange.kept
    changed = {name for name, tensor in run.weights.items() if not torch.equal(tensor, initial[name])}
    assert kept
    assert changed == set(initial) - set(kept)
    size = size_in_bytes(federation.exchange.sent(initial))
    assert size < size_in_bytes(initial)
    tests = 4 * size
    assert all((row["bytes_up"], row["bytes_down"]) == (3 * size, 3 * size + tests) for row in run.rows)
    own = {client: without_prefix(AT_HOME, state) for client, state in run.client_states.items()}
    assert own.keys() == {client for row in run.rows for client in row["client_ids"]}
    assert all(tensors.keys() == set(kept) for tensors in own.values())
    first, second, *_ = own.values()
    assert not same_tensors(first, second)


@pytest.mark.parametrize("name", METHODS)
def test_every_client_is_tested_with_its_own_model_after_the_round(name):
    run = trained(settings(name))
    federation = build_federation(run.experiment)
    whole = {c: federation.exchange.complete(run.weights, run.own_state(c)) for c in range(4)}
    tallies = [federation.evaluate_client(whole[client], client) for client in range(4)]
    mean = sum(sum(tally.correct) for tally in tallies) / sum(sum(tally.examples) for tally in tallies)
    last = run.rows[-1]
    assert last["held_out_accuracy"] == mean
    assert last["test_accuracy"] is last["test_loss"] is None  # there is no global model
    found = fedsol.personalize(run, changes={"test": "held-out", "epochs": (0,)}).results
    assert [result.before for result in found] == [tally.accuracy for tally in tallies]


@pytest.mark.parametrize("name", METHODS)
def test_on_workers_and_on_flower_nodes_it_is_the_same(name, tmp_path):
    run = trained(settings(name))
    workers = fedsol.train(settings(name, engine__kind="workers", engine__workers=2), out=tmp_path / "workers")
    assert_same_run(workers, run)
    plain = fedsol.personalize(run).results
    assert fedsol.personalize(Run.load(tmp_path / "workers")).results == plain
    pytest.importorskip("flwr", reason="Flower is an optional dependency: pip install 'fedsol[flower]'")
    from tests.support.fake_grid import deployed, simulated

    assert_same_run(simulated(settings(name))[0], run)
    assert_same_run(deployed(settings(name), tmp_path)[0], run)


@pytest.mark.parametrize("name", METHODS)
def test_a_run_resumed_from_disk_has_the_clients_parts_again(name, tmp_path):
    run = settings(name, server__checkpoint_every=2)
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(run, [StopAfter(2)], tmp_path)
    assert_same_run(fedsol.train(run, out=tmp_path, resume=True), trained(run))


def test_with_nothing_exchanged_a_client_trains_alone_bit_for_bit():
    table = {"name": "fedper", "exchange": "none"}
    run = fedsol.train(experiment(table, rounds=1, client__epochs=3, server__fraction=1.0))
    federation = build_federation(run.experiment)
    assert same_tensors(run.weights, federation.initial_weights())
    assert (run.rows[0]["bytes_up"], run.rows[0]["bytes_down"]) == (0, 0)
    for client in range(federation.clients):
        alone = resolve_settings(federation, 1, "local-only", {"epochs": (3,), "lr_decay": 1.0})
        (weights,) = fine_tuned(federation, federation.initial_weights(), client, alone).values()
        assert same_tensors(federation.exchange.complete({}, run.own_state(client)), weights)


@pytest.mark.parametrize("table", [{"name": "fedsol", "perturb": "all"}, {"name": "moon"}, {"name": "fednova"}])
def test_any_method_without_memory_on_the_server_can_keep_weights(table):
    run = trained(experiment(table, server__exchange="body", data__partition__held_out=0.2))
    federation = build_federation(run.experiment)
    assert set(federation.exchange.kept) == HEAD
    assert all(row["rejected"] == 0 for row in run.rows)
    first, second, *_ = (without_prefix(AT_HOME, state) for state in run.client_states.values())
    assert first.keys() == HEAD
    assert not same_tensors(first, second)


def test_the_exchange_of_the_server_and_of_the_method_are_both_kept_at_home():
    federation = build_federation(experiment({"name": "fedper"}, server__exchange="weight$"))
    assert {name for name in federation.initial_weights() if name not in federation.exchange.kept} == {
        "body.1.weight",
        "body.3.weight",
    }


def test_a_client_never_seen_has_the_initial_parts():
    federation = build_federation(experiment({"name": "fedper"}))
    initial = federation.initial_weights()
    changed = {name: tensor + 1 for name, tensor in initial.items()}
    whole = federation.exchange.complete(federation.exchange.sent(changed), {})
    assert same_tensors(whole, {name: initial[name] if name in HEAD else changed[name] for name in initial})
    own = prefixed(AT_HOME, {name: changed[name] for name in HEAD})
    assert same_tensors(federation.exchange.complete(federation.exchange.sent(changed), own), changed)


def test_fedrep_trains_the_head_first_and_then_the_body():
    found = {}
    for share in (0.25, 1.0):
        table = {"name": "fedrep", "head_share": share}
        federation = build_federation(experiment(table, client__batch_size=90))
        job = Job(0, 1, federation.exchange.sent(federation.initial_weights()), state=federation.initial_state())
        update = federation.train(job)
        assert update.steps == 3
        assert [federation.algorithm.part(step, 3) for step in range(3)].count("head") == round(3 * share)
        found[share] = {**update.weights, **without_prefix(AT_HOME, update.state)}
    initial = federation.initial_weights()
    assert all(torch.equal(found[1.0][name], initial[name]) for name in set(initial) - HEAD)  # no decay either
    assert not any(torch.equal(found[0.25][name], initial[name]) for name in initial)
    assert not any(torch.equal(found[0.25][name], found[1.0][name]) for name in HEAD)  # one step, and three


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm.name": "scaffold", "server.exchange": "body"}, r"server\.exchange: 'scaffold' is not allowed"),
        ({"algorithm.name": "feddyn", "server.exchange": "body"}, r"server\.exchange: 'feddyn' is not allowed"),
        ({"server.exchange": "neck"}, r"server\.exchange: 'neck' matches no weight"),
        ({"server.exchange": "("}, r"server\.exchange: must be a regular expression .*got '\('"),
        ({"algorithm.exchange": "neck"}, r"algorithm\.exchange: 'neck' matches no weight"),
        ({"data.validation": 0.2, "data.validation_by": "central"}, r"data\.validation_by: 'central' is not allowed"),
        ({"server.stop_at": 0.9}, r"server\.stop_at: 0\.9 is not allowed without a validation set"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        fedsol.train(experiment({"name": "fedper"}).override(changes))


def test_a_pattern_that_a_later_python_may_read_differently_is_no_warning():
    patterns = ("[[w]eight$", "weight$")
    made = [build_federation(experiment({"name": "fedper"}, server__exchange=pattern)) for pattern in patterns]
    assert made[0].exchange.kept == made[1].exchange.kept


def test_a_run_that_nobody_tests_is_warned_of(caplog):
    fedsol.train(experiment({"name": "fedper"}, rounds=1))
    assert "each client keeps its own head.weight, head.bias, so no model is tested" in caplog.text
    caplog.clear()
    fedsol.train(experiment({"name": "fedbn"}, rounds=1))
    assert "no normalization layers" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        trained(settings("fedper", rounds=1))
    assert not caplog.text


def test_analyses_of_a_global_model_are_refused(tmp_path):
    fedsol.train(settings("fedper", rounds=1), out=tmp_path / "run")
    from fedsol.analysis.replay import Replay

    with pytest.raises(InputError, match=r"analyze: is not possible: clients keep 5\.weight, 5\.bias"):
        _ = Replay(Run.load(tmp_path / "run")).federation
