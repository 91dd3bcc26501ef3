"""What clients keep out of training: never trained on, tested on by the client, the same on every engine."""

import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedsol
from fedsol.federation.evaluation import HoldOutSummary, Tally, summarize_hold_out
from fedsol.federation.federation import build_federation
from fedsol.federation.sampling import hold_out, sample_testers
from tests.support.cases import experiment
from tests.support.runs import assert_same_run


@given(st.integers(0, 200), st.floats(0, 0.99), st.integers(0, 5))
def test_both_parts_together_are_the_clients_samples(size, share, seed):
    indices = torch.arange(1000, 1000 + size)
    trained, kept = hold_out(indices, share, torch.Generator().manual_seed(seed))
    assert sorted([*trained.tolist(), *kept.tolist()]) == indices.tolist()
    assert not set(trained.tolist()) & set(kept.tolist())
    if share and size >= 2:
        assert len(trained) >= 1
        assert len(kept) >= 1
        assert abs(len(kept) - share * size) <= 1
    else:
        assert len(kept) == 0


def test_no_share_leaves_everything_as_it_was():
    federation = build_federation(experiment({"name": "fedavg"}))
    for client in range(federation.clients):
        assert federation.training_samples(client) is federation.partition[client]
        assert len(federation.held_out_samples(client)) == 0


def test_a_client_trains_on_nothing_that_it_held_out(monkeypatch):
    federation = build_federation(experiment({"name": "fedavg"}, data__partition__held_out=0.25))
    seen = []
    monkeypatch.setattr(
        "fedsol.federation.federation.train_client",
        lambda job, algorithm, model, data, training: seen.append(data.indices),
    )
    from fedsol.core.messages import Job

    for client in range(federation.clients):
        federation.train(Job(client, 1, {}))
        assert not set(seen[-1].tolist()) & set(federation.held_out_samples(client).tolist())
        size = len(federation.partition[client])
        assert len(seen[-1]) == size - round(0.25 * size)


@pytest.mark.parametrize("testers", [None, 3])
def test_every_engine_reports_the_same_spread(testers):
    changes = {"data__partition__held_out": 0.2, "server__evaluate_clients": testers}
    local = fedsol.train(experiment({"name": "fedsol"}, **changes))
    assert_same_run(
        fedsol.train(experiment({"name": "fedsol"}, engine__kind="workers", engine__workers=2, **changes)), local
    )
    row = local.rows[-1]
    federation = build_federation(experiment({"name": "fedsol"}, **changes))
    clients = sample_testers(federation.experiment, federation.clients, row["round"])
    assert len(clients) == (testers or federation.clients)
    tallies = [federation.evaluate_client(local.weights, client) for client in clients]
    accuracies = [sum(tally.correct) / sum(tally.examples) for tally in tallies]
    assert row["held_out_clients"] == len(clients)
    assert row["held_out_std"] == statistics.pstdev(accuracies)
    assert row["held_out_worst"] == min(accuracies)
    right, of_all = (sum(sum(getattr(tally, part)) for tally in tallies) for part in ("correct", "examples"))
    assert row["held_out_accuracy"] == right / of_all


def test_the_spread_by_hand():
    tallies = [Tally((0.0,), (3, 0), (4, 0)), Tally((0.0,), (0, 1), (0, 4)), Tally((), (0, 0), (0, 0))]
    assert summarize_hold_out(tallies) == HoldOutSummary(clients=2, mean=0.5, std=0.25, worst=0.25)
    assert summarize_hold_out([]) == HoldOutSummary(0, None, None, None)


def test_without_a_share_the_row_says_nothing():
    row = fedsol.train(experiment({"name": "fedavg"}, rounds=1)).rows[0]
    assert row["held_out_clients"] == 0
    assert row["held_out_accuracy"] is row["held_out_std"] is row["held_out_worst"] is None


@pytest.mark.parametrize("fewest", [1, 3, 4])
def test_a_round_with_too_few_updates_leaves_the_model_as_it_is(fewest):
    plain = experiment({"name": "scaffold"}, rounds=1)
    initial = build_federation(plain).initial_weights()
    run = fedsol.train(experiment({"name": "scaffold"}, rounds=1, server__min_updates=fewest))
    taken = run.rows[0]["clients"]
    assert taken == 3
    changed = any(not torch.equal(run.weights[name], initial[name]) for name in initial)
    assert changed == (taken >= fewest)
