"""Estimates: bytes that are exact, arithmetic done by hand, and honest words about what is not known."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import fedsol
from fedsol import Experiment, InputError
from fedsol.algorithms import make_algorithm
from fedsol.cli.app import app
from fedsol.cli.console import console
from fedsol.cli.estimate import _BANDWIDTHS, _SECONDS, assumptions, parse_quantity
from fedsol.federation.federation import build_federation
from fedsol.runs.client_states import MEMORY_BUDGET
from fedsol.studies import estimate
from fedsol.studies.estimate import Network, Speed, bytes_per_client, make_trial
from fedsol.studies.plan import Plan, make_plans
from fedsol.studies.variants import Variant
from tests.support.cases import WITH_BATCH_NORM, experiment, federated_loop_cases
from tests.support.runs import trained


def plan_of(settings: Experiment, per_round: int | None = None, examples: int | None = None, **numbers: int) -> Plan:
    keys = {"clients": "data.partition.clients", "rounds": "rounds"}
    settings = settings.override({keys[name]: value for name, value in numbers.items()})
    (plan,) = make_plans([Variant("mine", settings)], per_round, examples)
    return plan


@pytest.fixture
def missing(tmp_path) -> Experiment:
    """An experiment on data that is not there."""
    return Experiment(data={"name": "cifar10", "root": str(tmp_path)}, model={"name": "mlp"})


@federated_loop_cases
@pytest.mark.parametrize("model", [{}, WITH_BATCH_NORM], ids=["mlp", "batch norm"])
def test_bytes_are_exactly_those_of_a_run(case, model):
    settings = experiment(case.table, **model)
    plan = plan_of(settings)
    counted = estimate.count_bytes(plan, bytes_per_client(make_trial(plan)))
    run = trained(settings)
    assert sum(row["bytes_down"] for row in run.rows) == counted["total_down"]
    assert sum(row["bytes_up"] for row in run.rows) == counted["total_up"]
    assert {(row["bytes_down"], row["bytes_up"]) for row in run.rows} == {(counted["round_down"], counted["round_up"])}


@pytest.mark.parametrize("testers", [None, 2])
def test_bytes_of_tests_on_what_clients_held_out(testers):
    changes = {"rounds": 3, "data__partition__held_out": 0.2, "server__evaluate_clients": testers}
    settings = experiment({"name": "scaffold"}, server__evaluate_every=2, **changes)
    plan = plan_of(settings)
    counted = estimate.count_bytes(plan, bytes_per_client(make_trial(plan)))
    assert sum(row["bytes_down"] for row in fedsol.train(settings).rows) == counted["total_down"]


@pytest.mark.parametrize("by", ["client", "central"])
def test_what_is_set_aside_for_validation_is_tested_and_not_trained_on(by):
    """As in a run of the same settings; of 120 samples 30 are held out, 22 of the rest are for validation."""
    changes = {"data__validation": 0.25, "data__validation_by": by, "data__partition__held_out": 0.25}
    settings = experiment({"name": "fedavg"}, rounds=2, data__partition__kind="iid", server__fraction=1.0, **changes)
    plan = plan_of(settings)
    run = fedsol.train(settings)
    counted = estimate.count_bytes(plan, bytes_per_client(make_trial(plan)))
    assert sum(row["bytes_down"] for row in run.rows) == counted["total_down"]
    assert abs(plan.sizes.sum() - run.rows[0]["examples"]) <= 2
    assert abs(plan.set_aside - (1437 - run.rows[0]["examples"])) <= 2
    seconds = estimate.seconds_here(plan, SPEED)
    assert seconds["evaluation"] == (len(plan.dataset.test) + plan.set_aside) * SPEED.test
    assert any("train on a part of" in assumption for assumption in plan.assumptions)
    assert plan_of(settings.override({"data.partition.clients": 5}), examples=120).sizes.tolist() == [68] * 5


def test_the_best_round_is_one_more_checkpoint():
    plain, best = (
        estimate.count_memory(plan_of(experiment({"name": "fedavg"}, data__validation=share)), 0)
        for share in (0.0, 0.2)
    )
    assert best["checkpoints"] * 2 == plain["checkpoints"] * 3
    assert best["server_state"] - plain["server_state"] == plain["model"]


def test_a_method_without_rounds_is_refused():
    with pytest.raises(InputError, match="it has no rounds and sends nothing"):
        plan_of(experiment({"name": "local-only"}))


def test_bytes_by_hand():
    """An mlp of 64 inputs, two hidden layers of 16 and 10 classes, in float32."""
    federation = build_federation(experiment({"name": "fedavg"}))
    model = 4 * (64 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10)
    assert bytes_per_client(federation) == (model, model, 0, model)
    scaffold, moon = (replace(federation, algorithm=make_algorithm({"name": name})) for name in ("scaffold", "moon"))
    assert bytes_per_client(scaffold) == (2 * model, model + 8, model, model)
    assert bytes_per_client(moon) == (model, model, model, model)


def test_those_who_drop_out_send_nothing():
    plan = plan_of(experiment({"name": "fedavg"}, faults__dropout=0.5))
    traffic = bytes_per_client(make_trial(plan))
    counted = estimate.count_bytes(plan, traffic)
    assert counted["round_down"] == 3 * traffic.down
    assert counted["round_up"] == 1.5 * traffic.up


SPEED = Speed(sample=0.01, update=0.25, test=0.001, spread=0.2)


def test_a_trial_is_the_experiment_with_a_client_per_worker_and_few_steps(missing):
    """Clients of 500 samples in batches of 50 make four steps; clients of 6 make four epochs of one."""
    for examples, size, epochs in ((500, 200, 1), (6, 6, 4)):
        settings = missing.override({"client.epochs": 5, "engine.workers": 2})
        trial = make_trial(plan_of(settings, clients=100, per_round=10, examples=examples))
        assert [len(indices) for indices in trial.partition] == [size] * 2
        assert trial.experiment.client.epochs == epochs
        assert len(trial.dataset.test) == 2 * 8 * 50


def test_a_number_of_steps_by_hand(missing):
    """10 steps of 50 samples for clients of 500 each; of 6 samples for those that have no more."""
    for examples, samples in ((500, 500), (6, 60), (120, 400)):
        plan = plan_of(missing.override({"client.steps": 10}), clients=100, per_round=10, examples=examples)
        assert plan.samples_per_round.tolist() == [samples] * 100
        trial = make_trial(plan)
        assert trial.experiment.client.steps == 4
        assert trial.steps_of(examples, 1.0) == 4


@pytest.mark.parametrize("level", ["client", "example"])
def test_a_trial_clips_as_the_run_does_and_says_nothing_of_privacy(level, caplog):
    """The steps of DP-SGD take longer; without noise there is nothing to account for."""
    settings = experiment({"name": "fedavg"}, privacy__epsilon=8.0, privacy__level=level, privacy__clip_norm=0.5)
    trial = make_trial(plan_of(settings))
    assert (trial.experiment.privacy.level, trial.experiment.privacy.clip_norm) == (level, 0.5)
    assert trial.experiment.privacy.is_on
    estimate.time_trial(trial)
    assert "privacy" not in caplog.text


def test_a_method_that_privacy_does_not_cover_is_refused():
    with pytest.raises(InputError, match="privacy: is not allowed with scaffold: its clients send more than weights"):
        estimate.time_trial(make_trial(plan_of(experiment({"name": "scaffold"}, privacy__epsilon=8.0))))


def test_a_trial_runs_whatever_faults_the_experiment_has():
    settings = experiment({"name": "fedavg"}, faults__dropout=0.9, server__min_updates=3)
    speed = estimate.time_trial(make_trial(plan_of(settings)))
    assert speed.sample > 0
    assert speed.update > 0
    assert 0 <= speed.spread < 1


def test_seconds_on_this_machine_by_hand(missing):
    """7 clients of 120 samples in a round, on 2 workers, 2 epochs; 5 rounds, 3 evaluations."""
    settings = missing.override({"client.epochs": 2, "server.evaluate_every": 2, "engine.workers": 2})
    plan = plan_of(settings, clients=100, per_round=7, rounds=5, examples=120)
    found = estimate.seconds_here(plan, SPEED)
    training = 4 * 2 * 120 * 0.01
    assert found["training"] == pytest.approx(training)
    assert (found["server"], found["evaluation"]) == (1.75, 10.0)
    assert found["total"] == pytest.approx(5 * (training + 1.75) + 3 * 10)
    assert found["round"] == pytest.approx(found["total"] / 5)
    assert (found["spread"], found["repeats"]) == (0.2, 2)


def test_sizes_are_those_of_the_run_and_the_slowest_client_decides():
    settings = experiment({"name": "fedavg"}, rounds=3)
    plan = plan_of(settings)
    assert plan.sizes.tolist() == [len(indices) for indices in build_federation(settings).partition]
    run = fedsol.train(settings)
    slowest = np.mean([plan.sizes[row["client_ids"]].max() for row in run.rows])
    found = estimate.deploy(plan, Network(), SPEED, bytes_per_client(make_trial(plan)))
    assert found["training"] == pytest.approx(slowest * settings.client.epochs * 0.01)


def test_a_deployment_by_hand(missing):
    plan = plan_of(missing.override({"client.epochs": 1}), clients=1000, per_round=10, rounds=200, examples=50)
    traffic = bytes_per_client(make_trial(plan))
    size = traffic.down
    network = Network(up=size / 8, down=size / 2, device_speed=0.5)
    found = estimate.deploy(plan, network, SPEED, traffic)
    assert (found["download"], found["upload"]) == (2, 8)
    assert found["training"] == pytest.approx(50 * 0.01 / 0.5)
    assert found["server"] == pytest.approx(10 * 0.25 + 10)
    assert found["round"] == pytest.approx(2 + 1 + 8 + 12.5)
    assert found["total"] == pytest.approx(200 * found["round"])
    assert found["client_rounds"] == pytest.approx(2)
    assert found["client_bytes"] == pytest.approx(2 * 2 * size)
    assert found["client_bytes_per_month"] == pytest.approx(30 * 86400 / 23.5 / 100 * 2 * size)
    thirds = estimate.deploy(
        replace(plan, sizes=np.full(30, 50), per_round=3), Network(interval=3600.0), SPEED, traffic
    )
    assert repr(thirds["client_bytes"]) == str(20 * 2 * size)
    assert repr(thirds["client_bytes_per_month"]) == str(72 * 2 * size)
    narrow = replace(network, server_up=size, server_down=size / 2, interval=3600.0)
    found = estimate.deploy(plan, narrow, SPEED, traffic)
    assert (found["download"], found["upload"], found["round"]) == (10, 20, 3600)
    assert found["total"] == pytest.approx(199 * 3600 + 10 + 1 + 20 + 12.5)


def test_memory_by_hand(missing):
    adam = missing.override({"algorithm.name": "scaffold", "server.optimizer": "adam", "server.checkpoint_every": 2})
    plan = plan_of(adam, clients=1_000_000, per_round=10, rounds=3, examples=50)
    model = bytes_per_client(make_trial(plan)).state
    found = estimate.count_memory(plan, process=1000)
    assert found["model"] == model
    assert found["data"] == 60_000 * (3 * 32 * 32 + 8)
    assert found["updates"] == 10 * (model + 8)
    assert found["server_state"] == 2 * (model + model + 2 * model) + 2 * model
    assert found["checkpoints"] == 2 * 4 * model
    touched = 1e6 * (1 - (1 - 1e-5) ** 3)
    assert found["states_on_disk"] == pytest.approx((touched + 20) * model, abs=1)
    assert found["states_in_memory"] == pytest.approx(touched * model, abs=1)
    parts = ("data", "updates", "server_state", "states_in_memory")
    assert found["server"] == 1000 + sum(found[part] for part in parts)
    many = estimate.count_memory(replace(plan, experiment=plan.experiment.override({"rounds": 10**6})), 0)
    assert many["states_in_memory"] == MEMORY_BUDGET


@pytest.mark.parametrize(("clients", "held"), [(10, 10), (48, 48), (1000, 48)])
def test_averaged_updates_are_held_in_small_numbers(missing, clients, held):
    """Three windows of 16 clients may be under way; a method whose server needs every update holds them all."""
    settings = missing.override({"engine.workers": 2})
    numbers = {"clients": 100_000, "per_round": clients, "examples": 50}
    plan = plan_of(settings.override({"algorithm.name": "fedsol"}), **numbers)
    traffic = bytes_per_client(make_trial(plan))
    assert estimate.count_memory(plan, 0)["updates"] == held * traffic.up
    said = f"memory: mine averages updates as they arrive; at most {held} are held at once"
    assert said in assumptions([plan], Network())
    median = plan_of(settings.override({"server.aggregation": "median"}), **numbers)
    assert estimate.count_memory(median, 0)["updates"] == clients * traffic.up
    said = f"memory: mine holds all {clients:,} updates of a round: server.aggregation = 'median' compares them"
    assert said in assumptions([median], Network())


def test_the_server_of_a_deployment_holds_all_updates(missing):
    """Its clients cannot be asked twice."""
    plan = plan_of(missing.override({"engine.workers": 1}), clients=1000, per_round=100, examples=4)
    (found,) = estimate.estimate([plan], Network(up=1e6))
    assert (found["updates_held"], found["reason_held"]) == (48, None)
    memory, up = found["memory"], found["bytes"]["client_up"]
    assert found["deployment"]["server_memory"] == memory["server"] - memory["data"] + 52 * up


def test_the_state_of_clients_on_disk_is_what_a_run_writes(tmp_path):
    settings = experiment({"name": "scaffold"}, rounds=4)
    plan = plan_of(settings)
    traffic = bytes_per_client(make_trial(plan))
    found = estimate.count_memory(plan, 0)
    run = fedsol.train(settings, out=tmp_path)
    touched = {client for row in run.rows for client in row["client_ids"]}
    files = sum(path.stat().st_size for path in (tmp_path / "checkpoints" / "clients").iterdir())
    assert len(touched) * traffic.state <= files <= 1.2 * found["states_on_disk"]


def test_a_step_needs_at_least_its_gradients_momentum_and_activations():
    """Weights, gradients and momentum, two hidden layers for 50 examples; little more than that and the inputs."""
    plan = plan_of(experiment({"name": "fedavg"}))
    model = bytes_per_client(make_trial(plan)).down
    inputs = 4 * 64 * int(plan.sizes.max())  # of the largest client, normalized once
    found = estimate.count_memory(plan, 0)["training"]
    assert 3 * model + 2 * 4 * 50 * 16 <= found <= 5 * model + 4 * (4 * 50 * 64) + inputs


def test_memory_is_that_of_the_largest_client(missing):
    """Most clients have 2 samples and one has 500: its batches of 50 decide."""
    plan = plan_of(missing, clients=10, examples=50)
    unequal = replace(plan, sizes=np.array([2] * 9 + [500]))
    found = estimate.count_memory(unequal, 0)["training"]
    everyone = estimate.count_memory(replace(plan, sizes=np.full(10, 500)), 0)["training"]
    assert found == pytest.approx(everyone, rel=1e-3)  # some scalars may live a moment longer
    assert found > 1.05 * estimate.count_memory(replace(plan, sizes=np.full(10, 2)), 0)["training"]


PRIVATE = {"name": "private", "private": {"shape": [3, 8, 8], "classes": 4}, "partition": {"clients": 6}}


@pytest.mark.parametrize("inputs", ["images", "features"])
def test_private_data_is_estimated_on_random_samples(inputs):
    settings = Experiment(data=PRIVATE, model={"name": "mlp"}, rounds=2, server={"fraction": 0.5})
    plan = plan_of(settings.override({"data.private.inputs": inputs, "engine.kind": "local"}), examples=20)
    assert plan.sizes.tolist() == [20] * 6
    assert plan.assumptions[0] == "private: only the nodes have it; random samples of its shape stand in for it"
    (found,) = estimate.estimate([plan], Network())
    assert found["seconds"]["evaluation"] == 0
    assert found["seconds"]["training"] > 0


def test_private_data_needs_the_samples_of_a_client():
    with pytest.raises(InputError, match="--examples: is missing; only the nodes know how much private data they have"):
        plan_of(Experiment(data=PRIVATE, model={"name": "mlp"}))


def test_data_that_is_missing_is_neither_downloaded_nor_needed(missing, tmp_path):
    plan = plan_of(missing, clients=30)
    assert not plan.is_real
    assert (len(plan.sizes), plan.sizes.sum()) == (30, 50_000)
    assert plan.dataset.train.inputs.untyped_storage().nbytes() < 60_000
    assert "random samples" in plan.assumptions[0]
    (found,) = estimate.estimate([plan], Network())
    assert found["seconds"]["total"] > 0
    assert found["deployment"] is None
    assert list(tmp_path.iterdir()) == []


def test_workers_and_local_are_both_measured(missing):
    plans = [plan_of(missing.override({"engine.kind": kind}), rounds=2) for kind in ("local", "workers")]
    both = estimate.estimate(plans, Network(up=1e6))
    assert both[0]["workers"] == 1
    assert all(one["seconds"]["round"] > 0 and one["deployment"] is not None for one in both)


@pytest.mark.parametrize(
    ("request_", "part"),
    [
        ({"per_round": 101}, r"--per-round: must be at most 100, the number of clients \(got 101\)"),
        (
            {"clients": 60_000},
            r"at most 50000, the samples of cifar10 \(got 60000\); set the samples per client with --examples",
        ),
    ],
)
def test_numbers_that_no_federation_has(missing, request_, part):
    with pytest.raises(InputError, match=part):
        plan_of(missing, **request_)


def test_a_partition_of_its_own_needs_the_data_or_numbers(missing):
    own = missing.override({"data.partition.kind": "own"})
    with pytest.raises(InputError, match="is for data with client ids"):
        plan_of(own)
    with pytest.raises(InputError, match="needs --clients"):
        plan_of(own, examples=10)
    assert plan_of(own, examples=10, clients=7).sizes.tolist() == [10] * 7


@pytest.mark.parametrize(
    ("text", "rate"), [("10Mbit", 1.25e6), ("1.5 Gbit/s", 187.5e6), ("800kbit", 1e5), ("2MB", 2e6), ("8bit", 1)]
)
def test_bandwidths(text, rate):
    assert parse_quantity("--up", text, _BANDWIDTHS, "10Mbit") == rate


@pytest.mark.parametrize("text", ["10", "fast", "0Mbit", "-1Mbit", "10mbit", ""])
def test_what_is_no_bandwidth(text):
    with pytest.raises(InputError, match=r"--up: must be .* such as 10Mbit \(got .*\); units: bit, B, kbit, .* GB$"):
        parse_quantity("--up", text, _BANDWIDTHS, "10Mbit")


def test_durations():
    found = [parse_quantity("--interval", text, _SECONDS, "10min") for text in ("30s", "10 min", "1.5h", "1d")]
    assert found == [30, 600, 5400, 86400]
    with pytest.raises(InputError, match=r"--interval: must be .* such as 10min \(got '10'\); units: s, min, h, d$"):
        parse_quantity("--interval", "10", _SECONDS, "10min")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.977 KiB"),
        (8625960, "8.23 MiB"),
        (2**40, "1 TiB"),
        (5000 * 2**50, "5,000 PiB"),
    ],
)
def test_bytes_for_people(count, text):
    assert estimate.show_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.0123, "12.3 ms"), (119, "119 s"), (600, "10 min"), (7200, "2 h"), (86400 * 12345, "12,345 d")],
)
def test_seconds_for_people(seconds, text):
    assert estimate.show_seconds(seconds) == text


def run_cli(*arguments):
    return CliRunner().invoke(app, ["estimate", "--set", "engine.kind=local", *arguments])


def test_the_command_shows_a_row_for_each_method_and_its_assumptions(monkeypatch):
    monkeypatch.setattr(console, "_width", 120)
    done = run_cli("-a", "fedavg,scaffold:steps=plain", "--up", "10Mbit", "--rounds", "7")
    assert done.exit_code == 0, done.output
    assert done.output.count("│ fedavg ") == 4
    assert done.output.count("│ scaffold:steps=plain ") == 4
    assert "100 clients, 10 in a round, 7 rounds" in done.output
    assert "stragglers" in done.output
    assert re.search(r"┃ +± ┃", done.output)
    assert re.search(r"│ +\d+% │", done.output)
    assert "not given, so unlimited: --down, --server-up, --server-down" in done.output


def test_bytes_with_drop_outs_are_said_to_be_expected_ones():
    done = run_cli("-a", "fedavg", "--set", "faults.dropout=0.5")
    assert done.exit_code == 0, done.output
    assert "bytes up: an expected value" in done.output


def test_the_command_speaks_json():
    done = run_cli("--json", "--clients", "1000", "--per-round", "10", "--examples", "20")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    (method,) = found["methods"]
    assert method["algorithm"]["name"] == method["label"] == "fedsol"
    assert (method["clients"], method["per_round"]) == (1000, 10)
    assert method["bytes"]["round_up"] == 10 * method["bytes"]["client_up"]
    assert method["deployment"] is None
    assert any("1,000 clients has 20 samples" in note for note in found["assumptions"])


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--up", "fast"], "such as 10Mbit (got 'fast')"),
        (["--server-down", "3"], "--server-down: must be a number"),
        (["--device-speed", "0"], "--device-speed: must be greater than 0 (got 0.0)"),
        (["--interval", "soon"], "such as 10min (got 'soon')"),
        (["--rounds", "0"], "--rounds"),
        (["--clients", "0"], "--clients"),
        (["--per-round", "-1"], "--per-round"),
        (["-a", "fedsoll"], "fedsol"),
        (["nowhere.toml"], "nowhere.toml"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, part):
    done = run_cli(*arguments)
    assert done.exit_code == 2
    assert part in done.output
    assert "Traceback" not in done.output


def test_private_tables_are_estimated_on_zeros():
    private = {"inputs": "table", "numbers": {"age": [50.0, 10.0]}, "categories": {"sex": ["f", "m"]}, "classes": 2}
    data = {"name": "private", "target": "ill", "private": private, "partition": {"clients": 6}}
    plan = plan_of(Experiment(data=data, engine={"kind": "local"}), examples=20)
    assert plan.dataset.train.inputs["categories"].shape == (20, 1)
