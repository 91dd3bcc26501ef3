"""`[privacy]` in a run: on every engine, for every method by which it covers what is released, and over a kill."""

import json
import math
import shutil

import pytest
import torch

import fedsol
from fedsol.config.catalog import ALGORITHMS
from fedsol.core.messages import Job
from fedsol.core.weights import norm, pick, subtract
from fedsol.errors import InputError, RunError
from fedsol.federation.federation import assemble, build_federation
from fedsol.privacy.accounting import Mechanism
from fedsol.privacy.noise import SIMULATED
from fedsol.privacy.release import clipped_sum
from fedsol.reports.page import render, report_data
from fedsol.training.private import plan_privacy, private_rounds, with_privacy
from tests.support.cases import experiment
from tests.support.runs import StopAfter, assert_same_run, trained

PAYLOAD = {"scaffold", "fednova", "fedcm", "fedgamma", "fedlesam-s", "fedsmoo", "mofedsam"}
"""Methods whose clients send more than weights."""
OFTEN = {"fedavg", "feddyn", "moon", "fedsol", "fedbabu"}
ALLOWED = [
    pytest.param(name, marks=() if name in OFTEN else pytest.mark.full)
    for name in sorted(ALGORITHMS.keys() - PAYLOAD - {"fedexp", "local-only"})
]


def private(name="fedavg", **changes):
    return experiment({"name": name}, **{"privacy__noise_multiplier": 2.0, "privacy__clip_norm": 0.05, **changes})


@pytest.mark.parametrize("name", ALLOWED)
def test_replacing_a_client_changes_the_sum_by_at_most_twice_the_norm(name):
    """Two federations that differ in the data of client 1; what the others send is the same, bit for bit."""
    one = with_privacy(build_federation(private(name)))
    partition = [*one.partition]
    partition[1] = partition[0][:20]
    other = assemble(one.experiment, one.dataset, partition)
    server = one.sending(one.initial_server())
    jobs = [Job(client, 1, server.weights, one.algorithm.broadcast(server), one.initial_state()) for client in range(3)]
    sent, replaced = ([federation.train(job) for job in jobs] for federation in (one, other))
    for number in (0, 2):
        assert all(torch.equal(sent[number].weights[key], value) for key, value in replaced[number].weights.items())
    anchor = pick(server.weights, server.parameters)
    sums = [clipped_sum(anchor, [u.weights for u in updates], 0.05).total for updates in (sent, replaced, sent[::2])]
    assert 0 < float(norm(subtract(sums[0], sums[1]))) <= 2 * 0.05 * (1 + 1e-9)
    assert 0 < float(norm(subtract(sums[0], sums[2]))) <= 0.05 * (1 + 1e-9)


@pytest.mark.parametrize("name", ALLOWED)
def test_a_method_sees_the_noised_mean_and_nothing_else(name):
    federation = with_privacy(build_federation(private(name)))
    rounds, server = private_rounds(federation, None), federation.sending(federation.initial_server())
    broadcast, state = federation.algorithm.broadcast(server), federation.initial_state()
    updates = [federation.train(Job(client, 1, server.weights, broadcast, state)) for client in (0, 1, 3)]
    seen, after, clipped = rounds.release(server, updates, 1)
    assert after is server
    assert clipped == sum(float(norm(subtract(server.weights, update.weights))) > 0.05 for update in updates)
    assert len(seen) == 3  # as many as were sampled, whoever answered
    assert all(one.weights is seen[0].weights and not one.payload and not one.state for one in seen)
    assert {(one.examples, one.steps, one.share, *one.metrics) for one in seen} == {(1, 1, 1 / 3)}
    fewer, _, _ = private_rounds(federation, None).release(server, updates[:1], 1)
    assert [one.share for one in fewer] == [1 / 3] * 3


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_method_sends_weights_and_nothing_else_or_is_refused_by_name(name):
    """Of all that are registered, so that a new one is either covered or refused."""
    federation = build_federation(private(name))
    server = federation.sending(federation.initial_server())
    job = Job(0, 1, server.weights, federation.algorithm.broadcast(server), federation.initial_state())
    update = federation.train(job)
    covered = not update.payload and not federation.algorithm.compares_updates and name != "local-only"
    if covered:
        released = set(private_rounds(with_privacy(federation), None).released)
        moved = {key for key, tensor in update.weights.items() if not torch.equal(tensor, server.weights[key])}
        assert moved <= released == set(update.weights) - set(federation.untrained)
    else:
        with pytest.raises(InputError, match=f"privacy: is not allowed with {name}"):
            with_privacy(federation)


@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - {"fedavg", "fedprox"}))
def test_steps_of_every_other_method_are_refused_by_name(name):
    with pytest.raises(
        InputError, match=rf"privacy\.level: 'example' is not allowed with {name}; allowed: fedavg, and"
    ):
        private(name, privacy__level="example")


def test_a_server_that_compares_updates_is_refused():
    with pytest.raises(InputError, match="privacy: is not allowed with fedexp: its server compares the clients' upd"):
        fedsol.train(private("fedexp"))


@pytest.mark.parametrize("name", sorted(PAYLOAD))
def test_methods_that_send_more_are_refused_by_name(name):
    with pytest.raises(InputError, match=f"privacy: is not allowed with {name}: its clients send more than weights"):
        fedsol.train(private(name))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"server__weighting": "size"}, r"server.weighting: 'size' is not allowed with \[privacy\] on; allowed: 'unif"),
        ({"server__aggregation": "median"}, "server.aggregation: 'median' is not allowed"),
        ({"server__max_change": 3.0}, "server.max_change: 3.0 is not allowed"),
        ({"faults__late": 0.5}, "faults.late: 0.5 is not allowed"),
        ({"data__validation": 0.1}, "data.validation_by: 'client' is not allowed"),
        ({"privacy__clipping": "client"}, "engine.kind: 'local' is not allowed"),
        ({"privacy__noise_multiplier": 0.0, "privacy__epsilon": 1.0}, "without noise, epsilon is infinite"),
        ({"privacy__clip_norm": "adaptiv"}, "privacy.clip_norm: must be 'adaptive' or a finite number greater than 0"),
        ({"privacy__clip_norm": 0}, "privacy.clip_norm: must be 'adaptive' or a finite number greater than 0"),
        ({"privacy__clip_norm": math.inf}, r"privacy.clip_norm: must be .* greater than 0 \(got inf\)$"),
        ({"privacy__noise_multiplier": 1e-9}, r"privacy.noise_multiplier: must be 0, or at least 0.01 \(got 1e-09\)"),
        ({"privacy__noise_multiplier": 1e7}, "privacy.noise_multiplier: must be less than or equal to 1000000"),
        ({"privacy__delta": 1e-12}, "privacy.delta: must be greater than or equal to 0.0000000001"),
        ({"privacy__epsilon": 1e-3}, r"privacy.epsilon: must be at least 4\.\d+, what one round spends"),
        ({"privacy__epsilon": 1e-7, "privacy__noise_multiplier": None}, "privacy.epsilon: 1e-07 is too little"),
        ({"model__name": "tests.support.user_code:with_batch_norm", "model__options": {}}, "running statistics"),
        ({"task__class_weights": "balanced"}, "task.class_weights: 'balanced' is not allowed with .privacy. on"),
        ({"privacy__epsilon": 8.0, "privacy__clipping": "off"}, "clipping: 'off' is not allowed with epsilon"),
        ({"privacy__level": "example", "privacy__clipping": "off"}, "clipping: 'off' is not allowed with epsilon"),
        ({"algorithm__name": "local-only"}, "privacy: is not allowed with local-only, which releases nothing"),
    ],
)
def test_what_the_noise_would_not_cover_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        fedsol.train(private(**changes))


def test_every_row_and_the_summary_have_epsilon_and_say_whom_the_noise_protects():
    run = trained(private(rounds=3))
    mechanism = Mechanism(3, 4, 2.0)
    assert [row["epsilon"] for row in run.rows] == [mechanism.epsilon(number, 1e-5) for number in (1, 2, 3)]
    assert [row["epsilon_next"] for row in run.rows[:2]] == [row["epsilon"] for row in run.rows[1:]]
    assert {(row["delta"], row["noise"], row["clip_norm"]) for row in run.rows} == {(1e-5, SIMULATED, 0.05)}
    assert [row["clipped"] for row in run.rows] == [3, 3, 3]
    summary = run.summary()
    assert (summary["epsilon"], summary["delta"], summary["noise"]) == (run.rows[-1]["epsilon"], 1e-5, SIMULATED)


@pytest.mark.parametrize(("key", "value"), [("clip_norm", 0.5), ("delta", 1e-6), ("accountant", "rdp")])
def test_a_setting_alone_protects_nobody_and_says_so(key, value, caplog):
    federation = build_federation(experiment({"name": "fedavg"}, **{f"privacy__{key}": value}))
    assert with_privacy(federation) is federation
    assert f"privacy.{key}: changes nothing" in caplog.text


@pytest.mark.parametrize(("level", "count"), [("client", "4 clients"), ("example", "439 samples of a client")])
def test_a_delta_that_promises_nothing_is_warned_of(level, count, caplog):
    for delta, warned in ((0.25, True), (1e-3, False)):
        caplog.clear()
        with_privacy(build_federation(private(privacy__level=level, privacy__delta=delta)))
        assert (f"privacy.delta: {delta:g} is too much for {count}: " in caplog.text) == warned


@pytest.mark.parametrize(
    ("name", "changes"), [("feddyn", {}), ("moon", {}), ("fedper", {}), ("fedavg", {"server__exchange": "body"})]
)
def test_clients_that_remember_are_not_hidden_by_sampling(name, changes, caplog):
    """What they send later depends on the rounds that they were in, so these are as good as known."""
    run = trained(private(name, **changes))
    assert [row["epsilon"] for row in run.rows] == [Mechanism(4, 4, 2.0).epsilon(rounds, 1e-5) for rounds in (1, 2)]
    assert [row["clients"] for row in run.rows] == [3, 3]
    rounds = private_rounds(with_privacy(build_federation(run.experiment)), None)
    rounds.announce(2)
    assert "3 of 4 clients a round (counted as all, since clients remember the rounds that they were in)" in caplog.text
    planned = plan_privacy(run.experiment, [50] * 4, {"anything": torch.zeros(1)})
    assert f"2 rounds spend epsilon = {run.rows[-1]['epsilon']:.4g} (every round counts as one of all)" in planned


def test_the_card_of_a_private_model_leaves_out_what_no_noise_covers(tmp_path):
    held_out = {"data__partition__held_out": 0.3}
    public, covered = (trained(experiment({"name": "fedavg"}, **held_out)), trained(private(**held_out)))
    for number, (run, is_shown) in enumerate(((public, True), (covered, False))):
        assert run.rows[-1]["held_out_accuracy"] is not None
        card = run.export(tmp_path / f"{number}.safetensors")[1].read_text()
        assert ("held_out_accuracy" in card) == is_shown
        assert ("held-out accuracy" in card) == is_shown
        assert "test_accuracy" in card


def test_without_privacy_rows_are_as_they_were():
    assert not {"epsilon", "noise"} & trained(experiment({"name": "fedavg"})).rows[0].keys()


@pytest.mark.parametrize("changes", [{}, {"privacy__clip_norm": "adaptive"}, {"server__optimizer": "adam"}])
def test_workers_and_a_killed_run_are_bitwise_the_local_engine(changes, tmp_path):
    settings = private(rounds=3, **changes)
    assert_same_run(fedsol.train(settings.override({"engine.kind": "workers", "engine.workers": 2})), trained(settings))
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(settings, [StopAfter(2)], out=tmp_path / "run")
    assert_same_run(fedsol.train(settings, out=tmp_path / "run", resume=True), trained(settings))


def test_an_adaptive_norm_moves_and_is_in_the_checkpoint(tmp_path):
    run = fedsol.train(private(rounds=3, privacy__clip_norm="adaptive"), out=tmp_path)
    norms = [row["clip_norm"] for row in run.rows]
    assert norms[0] == 0.1
    assert len(set(norms)) == 3
    assert fedsol.Run.load(tmp_path).checkpoint.server.clip_norm not in (None, *norms)


def test_the_noise_of_a_round_is_as_large_as_its_multiplier_says():
    quiet, loud = trained(private(rounds=1, privacy__noise_multiplier=0.0)), trained(private(rounds=1))
    noise = torch.cat([tensor.flatten() for tensor in subtract(loud.weights, quiet.weights).values()])
    assert float(noise.std()) == pytest.approx(2.0 * 0.05 / 3, rel=0.05)
    assert quiet.rows[0]["epsilon"] is None
    start = build_federation(private()).initial_weights()
    assert 0 < float(norm(subtract(quiet.weights, start))) <= 0.05 * (1 + 1e-4)


BUDGET = {"privacy__epsilon": 8.0, "rounds": 9}


def test_a_run_stops_before_the_round_that_would_exceed_its_budget(tmp_path):
    run = fedsol.train(private(**BUDGET), out=tmp_path)
    spent = [Mechanism(3, 4, 2.0).epsilon(number, 1e-5) for number in range(1, 10)]
    affordable = sum(epsilon <= 8.0 for epsilon in spent)
    assert 1 < affordable < 9
    assert len(run.rows) == affordable
    assert run.rows[-1]["epsilon"] <= 8.0 < run.rows[-1]["epsilon_next"]
    assert run.is_finished
    assert "one more round would make epsilon" in json.loads((tmp_path / "summary.json").read_text())["stopped"]
    longer = fedsol.train(private(**{**BUDGET, "rounds": 20}), out=tmp_path, resume=True)
    assert len(longer.rows) == affordable


@pytest.mark.parametrize("killed_after", [1, 2, 3])
def test_kills_around_the_end_of_the_budget_change_nothing(killed_after, tmp_path):
    settings = private(**BUDGET)
    whole = trained(settings)
    stop = len(whole.rows) - 2 + killed_after - 1
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(settings, [StopAfter(stop)], out=tmp_path)
    assert_same_run(fedsol.train(settings, out=tmp_path, resume=True), whole)


@pytest.mark.parametrize("level", ["client", "example"])
def test_rounds_that_are_repeated_for_want_of_a_checkpoint_are_spent_once(level, tmp_path):
    budget = trained(private(rounds=3, privacy__level=level, privacy__clip_norm=1.0)).rows[2]["epsilon"]
    settings = private(rounds=9, privacy__level=level, privacy__clip_norm=1.0, privacy__epsilon=budget)
    whole = fedsol.train(settings, out=tmp_path)
    assert len(whole.rows) == 3
    shutil.rmtree(tmp_path / "checkpoints" / "round-000003")  # killed between the row and the checkpoint
    assert_same_run(fedsol.train(settings, out=tmp_path, resume=True), whole)


@pytest.mark.parametrize(("fault", "released"), [("corrupted", True), ("dropout", False)])
def test_a_round_whose_updates_are_all_rejected_is_released_like_any_other(fault, released):
    """Otherwise an unchanged model would say that the data of a client made its update invalid."""
    settings = private(rounds=1, **{f"faults__{fault}": 1.0})
    change = norm(subtract(trained(settings).weights, build_federation(settings).initial_weights()))
    assert bool(change > 0) == released


def test_epsilon_alone_solves_for_the_noise_and_the_file_has_it(tmp_path):
    settings = experiment({"name": "fedavg"}, privacy__epsilon=8, rounds=3)
    run = fedsol.train(settings, out=tmp_path)
    assert 0.99 * 8 < run.rows[-1]["epsilon"] <= 8
    assert run.stopped is None
    saved = fedsol.Run.load(tmp_path).experiment
    assert saved.privacy.clipping == "server"
    assert saved.server.weighting == "uniform"
    assert Mechanism(3, 4, saved.privacy.noise_multiplier).epsilon(3, 1e-5) == run.rows[-1]["epsilon"]
    again = fedsol.train(settings.override({"rounds": 5}), out=tmp_path, resume=True)
    assert len(again.rows) == 3
    assert "privacy.epsilon" in again.stopped.reason


def test_a_longer_run_spends_more_and_says_so(tmp_path, caplog):
    fedsol.train(private(), out=tmp_path)
    caplog.clear()
    run = fedsol.train(private(rounds=4), out=tmp_path, resume=True)
    assert_same_run(run, trained(private(rounds=4)))
    spent = run.rows[1]["epsilon"]
    assert f"epsilon = {run.rows[3]['epsilon']:.4g} after 4 rounds" in caplog.text
    assert f"{spent:.4g} of it is spent" in caplog.text


@pytest.mark.parametrize("level", ["client", "example"])
@pytest.mark.parametrize(("key", "before", "after"), [("noise_multiplier", 2.0, 50.0), ("delta", 1e-05, 0.1)])
def test_editing_the_settings_of_a_run_does_not_reset_its_account(level, key, before, after, tmp_path):
    settings = private(privacy__level=level, privacy__clip_norm=1.0)
    run = fedsol.train(settings, out=tmp_path)
    path = tmp_path / "experiment.toml"
    assert f"\n{key} = {before}\n" in path.read_text()
    path.write_text(path.read_text().replace(f"\n{key} = {before}\n", f"\n{key} = {after}\n"))
    cheap = settings.override({f"privacy.{key}": after, "rounds": 3})
    spent = f"metrics.jsonl has epsilon = {run.rows[-1]['epsilon']:.4g} after round 2, and with the settings"
    with pytest.raises(RunError, match=f"{spent} .* an account cannot be reset"):
        fedsol.train(cheap, out=tmp_path, resume=True)
    assert fedsol.Run.load(tmp_path).rows == run.rows


def test_what_was_spent_is_in_the_card_the_report_and_a_notebook_and_will_be_in_the_estimate(tmp_path):
    run = fedsol.train(private(), out=tmp_path / "run")
    words = f"epsilon = {run.rows[-1]['epsilon']:.4g} at delta = 1e-05 for each client; {SIMULATED}"
    card = run.export(tmp_path / "model.safetensors")[1].read_text()
    assert f"- privacy: {words}" in card
    assert f'"privacy":"{words}"' in render(report_data([run]))
    assert words in run._repr_html_()
    planned = plan_privacy(run.experiment, [50] * 4, {})
    assert f"2 rounds spend epsilon = {run.rows[-1]['epsilon']:.4g}" in planned
    assert "one client's data, replaced by any other" in planned
