"""Misbehaving and unreliable clients: clipping, robust aggregation, and the simulated faults of `[faults]`."""

from dataclasses import replace

import pytest
import torch

import fedsol
from fedsol.algorithms import find_algorithm
from fedsol.algorithms.controls import GLOBAL, OWN
from fedsol.config.tables import FaultSettings
from fedsol.core.messages import ServerState, Update
from fedsol.core.weights import without_prefix
from fedsol.federation.faults import attackers, collude, corrupt, plan, with_flipped_labels
from fedsol.federation.federation import Federation, build_federation
from fedsol.training.updates import not_finite, reason_to_reject
from tests.support.cases import every_federated_name, experiment
from tests.support.runs import Recorder, StopAfter, assert_same_run, trained
from tests.support.tensors import same_tensors

SERVER = ServerState({"w": torch.tensor([3.0, 4.0]), "mean": torch.tensor([1.0])}, ("w",), 4)


def update(*values, **rest):
    weights = {"w": torch.tensor(values), "mean": torch.tensor([1.0])}
    return Update(0, weights, examples=1, steps=1, **rest)


def test_the_bound_rejects_attackers_that_are_far_away():
    """One of four clients is hostile, always the same."""
    attack = {"faults__attackers": 0.25, "faults__corruption": "noise", "faults__corruption_scale": 10.0}
    settings = experiment({"name": "fedavg"}, server__fraction=1.0, server__max_change=10.0, **attack)
    assert [row["rejected"] for row in fedsol.train(settings).rows] == [1, 1]


@pytest.mark.parametrize(
    ("bad", "part"),
    [
        (update(float("nan"), 1.0), "not finite in w"),
        (update(float("inf"), 1.0), "not finite in w"),
        (update(1e9, 1.0), "implausibly far"),
        (update(1.0), "of (1,)"),
        (replace(update(1.0, 2.0), examples=0), "no example"),
        (replace(update(1.0, 2.0), weights={"w": torch.ones(2)}), "missing ['mean']"),
        (replace(update(1.0, 2.0), payload={"x": torch.ones(1)}), "payload with wrong names"),
        (replace(update(1.0, 2.0), state={"x": torch.ones(1)}), "state with wrong names"),
    ],
)
def test_why_updates_are_rejected(bad, part):
    assert part in reason_to_reject(bad, SERVER, {}, {})


def test_a_good_update_is_not_rejected():
    assert reason_to_reject(update(1.0, 2.0), SERVER, {}, {}) is None


def test_values_are_finite_though_their_sum_is_not():
    largest = torch.finfo(torch.float32).max
    assert not_finite({"w": torch.tensor([largest, largest])}) is None
    assert not_finite({"w": torch.tensor([torch.inf, -torch.inf])}) == "that are not finite in w"


NOT_PLAIN = {"scaffold", "fednova", "feddyn", "fedcm", "mofedsam", "fedgamma", "fedsmoo", "fedlesam-s", "fedlesam-d"}
NOT_PLAIN |= {"fedacg", "fedexp"}


@pytest.mark.parametrize("aggregation", ["median", "trimmed-mean", "krum", "geometric-median"])
@every_federated_name
def test_robust_aggregation_combines_with_every_method_that_averages(name, aggregation):
    plain = find_algorithm(name)().averages_plainly()
    assert plain == (name not in NOT_PLAIN)
    if plain:
        run = fedsol.train(experiment({"name": name}, server__aggregation=aggregation, server__trim=0.3))
        assert not same_tensors(run.weights, trained(experiment({"name": name})).weights)
    else:
        with pytest.raises(fedsol.InputError, match=r"server\.aggregation: .* is not allowed with"):
            experiment({"name": name}, server__aggregation=aggregation)


def test_max_update_norm_is_counted_and_kept_to():
    recorder = Recorder()
    run = fedsol.train(experiment({"name": "fedavg"}, server__max_update_norm=0.01), [recorder])
    assert [row["clipped"] for row in run.rows] == [3, 3]
    for result in recorder.results:
        for one in result.updates:
            change = torch.cat([(one.weights[n] - result.before.weights[n]).flatten() for n in one.weights])
            assert float(change.norm()) == pytest.approx(0.01, rel=1e-3)


def faulty(name="fedsol", **faults):
    tables = {f"faults__{key}": value for key, value in faults.items()}
    return experiment({"name": name}, rounds=4, data__partition__clients=8, **tables)


@pytest.mark.parametrize(
    "faults",
    [
        {"dropout": 0.4},
        {"stragglers": 0.5},
        {"late": 0.5},
        {"corrupted": 0.4},
        {"corrupted": 0.4, "corruption": "noise"},
        {"corrupted": 0.4, "corruption": "flip", "corruption_scale": 2.0},
        {"corrupted": 0.4, "corruption": "label-flip"},
        {"corrupted": 0.4, "late": 0.3, "corruption": "little-is-enough", "corruption_scale": 1.5},
        {"dropout": 0.3, "stragglers": 0.3, "late": 0.3, "corrupted": 0.3},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["fedsol", "scaffold"])
def test_faults_are_recorded_deterministic_resumable_and_the_same_on_every_engine(faults, name, tmp_path):
    whole = fedsol.train(faulty(name, **faults))
    counted = {
        key: sum(row[key] for row in whole.rows) for key in ("dropped", "stragglers", "late", "corrupted", "rejected")
    }
    for fault, key in (
        ("dropout", "dropped"),
        ("stragglers", "stragglers"),
        ("late", "late"),
        ("corrupted", "corrupted"),
    ):
        assert (counted[key] > 0) == (fault in faults), (fault, counted)
    assert (counted["rejected"] > 0) == ("corrupted" in faults and faults.get("corruption", "nan") == "nan")
    assert not same_tensors(whole.weights, trained(faulty(name)).weights)
    assert_same_run(
        fedsol.train(faulty(name, **faults).override({"engine.kind": "workers", "engine.workers": 2})), whole
    )
    for stop in (1, 2, 3):
        with pytest.raises(KeyboardInterrupt):
            fedsol.train(faulty(name, **faults), [StopAfter(stop)], tmp_path, resume=stop > 1)
    assert_same_run(fedsol.train(faulty(name, **faults), out=tmp_path, resume=True), whole)


def test_every_method_meets_the_same_faults():
    keys = ("client_ids", "dropped", "stragglers", "late")
    seen = [
        [[row[key] for key in keys] for row in fedsol.train(faulty(name, dropout=0.3, late=0.3, stragglers=0.3)).rows]
        for name in ("fedavg", "fedsol", "scaffold")
    ]
    assert seen[0] == seen[1] == seen[2]


def test_the_shares_of_faults_are_what_was_asked_for():
    settings = fedsol.Experiment(faults={"dropout": 0.3, "stragglers": 0.2, "late": 0.1, "corrupted": 0.4})
    faults = [fault for t in range(1, 101) for fault in plan(settings, range(50), t, 50).values()]
    shares = {
        "dropped": sum(f.dropped for f in faults) / len(faults),
        "stragglers": sum(f.work < 1 for f in faults) / len(faults),
        "late": sum(f.late for f in faults) / len(faults),
        "corrupted": sum(f.corrupted for f in faults) / len(faults),
    }
    assert shares == pytest.approx({"dropped": 0.3, "stragglers": 0.2, "late": 0.1, "corrupted": 0.4}, abs=0.02)


def test_attackers_are_the_same_clients_in_every_round():
    settings = fedsol.Experiment(faults={"attackers": 0.3})
    seen = {
        frozenset(client for client, fault in plan(settings, range(20), t, 20).items() if fault.corrupted)
        for t in range(1, 20)
    }
    (hostile,) = seen
    assert len(hostile) == 6
    assert hostile == attackers(settings.faults, 0, 20) != attackers(settings.faults, 1, 20)


def test_flipped_labels_by_hand():
    federation = build_federation(experiment({"name": "fedavg"}))
    assert with_flipped_labels(federation.dataset).train.labels.tolist() == [
        9 - label for label in federation.dataset.train.labels.tolist()
    ]
    honest, hostile = Recorder(), Recorder()
    fedsol.train(experiment({"name": "fedavg"}, rounds=1, server__fraction=1.0), [honest])
    attack = {"faults__attackers": 0.25, "faults__corruption": "label-flip"}
    fedsol.train(experiment({"name": "fedavg"}, rounds=1, server__fraction=1.0, **attack), [hostile])
    pairs = zip(honest.results[0].updates, hostile.results[0].updates, strict=True)
    assert sum(not same_tensors(one.weights, other.weights) for one, other in pairs) == 1


def test_a_little_is_enough_by_hand():
    # Of 1 and 3 the mean is 2 and the deviation 1: two deviations below is 0. Counters come from the first.
    honest = [{"w": torch.tensor([1.0]), "n": torch.tensor(4)}, {"w": torch.tensor([3.0]), "n": torch.tensor(5)}]
    found = collude(honest, 2.0)
    assert torch.equal(found["w"], torch.tensor([0.0]))
    assert int(found["n"]) == 4


def test_colluding_attackers_all_send_what_follows_from_the_others():
    recorder = Recorder()
    attack = {"faults__attackers": 0.5, "faults__corruption": "little-is-enough", "faults__corruption_scale": 1.5}
    fedsol.train(experiment({"name": "fedavg"}, rounds=1, server__fraction=1.0, **attack), [recorder])
    updates = recorder.results[0].updates
    hostile = attackers(FaultSettings(attackers=0.5), 0, 4)
    sent = collude([one.weights for one in updates if one.client not in hostile], 1.5)
    assert len(hostile) == 2
    assert all(same_tensors(one.weights, sent) == (one.client in hostile) for one in updates)


def test_a_straggler_does_its_share_of_the_steps():
    recorder, full = Recorder(), Recorder()
    changes = {"client__epochs": 4, "client__batch_size": 20}
    fedsol.train(experiment({"name": "fedavg"}, **changes), [full])
    fedsol.train(
        experiment({"name": "fedavg"}, faults__stragglers=1.0, faults__straggler_work=0.25, **changes), [recorder]
    )
    for slow, fast in zip(recorder.results[0].updates, full.results[0].updates, strict=True):
        assert slow.steps == max(1, round(0.25 * fast.steps))


def test_everyone_dropping_out_changes_nothing():
    recorder = Recorder()
    run = fedsol.train(experiment({"name": "fedavg"}, faults__dropout=1.0), [recorder])
    assert same_tensors(run.weights, recorder.results[0].before.weights)
    assert [(row["clients"], row["dropped"]) for row in run.rows] == [(0, 3), (0, 3)]


def test_a_rejected_client_keeps_its_state_and_the_server_its_own(monkeypatch):
    """SCAFFOLD: what a rejected update carried enters neither the client's control variate nor the server's."""
    original, seen = Federation.train, {}

    def train(self, job):
        seen[job.round, job.client] = job
        found = original(self, job)
        if job.round == 1:
            found = replace(found, state={name: tensor * float("nan") for name, tensor in found.state.items()})
        return found

    monkeypatch.setattr(Federation, "train", train)
    recorder = Recorder()
    run = fedsol.train(experiment({"name": "scaffold"}), [recorder])
    assert [row["rejected"] for row in run.rows] == [3, 0]
    assert all(not tensor.any() for tensor in without_prefix(GLOBAL, recorder.results[0].after.state).values())
    for (round_number, _), job in seen.items():
        if round_number == 2:
            assert all(not tensor.any() for tensor in without_prefix(OWN, job.state).values())


@pytest.mark.parametrize("corruption", ["nan", "flip", "noise"])
def test_a_corrupted_update_has_its_counters(corruption):
    weights = {"w": torch.ones(2), "count": torch.tensor(7)}
    settings = FaultSettings(corruption=corruption)
    found = corrupt(
        Update(0, weights, examples=1, steps=1), weights_before(weights), settings, torch.Generator()
    ).weights
    assert torch.equal(found["count"], weights["count"])
    assert not torch.equal(found["w"], weights["w"])


def weights_before(weights):
    return {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
