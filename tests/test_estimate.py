"""Estimates: bytes that are exact, arithmetic done by hand, and honest words about what is not known."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_contract import CASES, experiment
from typer.testing import CliRunner

import fedsol
from fedsol import Experiment, InputError
from fedsol.algorithms import make_algorithm
from fedsol.cli.app import app
from fedsol.federation.federation import build_federation
from fedsol.runs.client_states import MEMORY_BUDGET
from fedsol.studies.estimate import calibration, footprint, prediction, units
from fedsol.studies.estimate.calibration import Calibration, Costs, Effort, Laps
from fedsol.studies.estimate.plan import Plan, Request, make_plans
from fedsol.studies.estimate.prediction import Network
from fedsol.studies.estimate.traffic import bytes_per_client
from fedsol.studies.variants import Variant

QUICK = Effort(seconds=0, fewest=2, most=2)


def plan_of(settings: Experiment, **request: int) -> Plan:
    (plan,) = make_plans([Variant("mine", settings)], Request(**request))
    return plan


@pytest.fixture
def missing(tmp_path) -> Experiment:
    """An experiment on data that is not there."""
    return Experiment(data={"name": "cifar10", "root": str(tmp_path)}, model={"name": "mlp"})


@pytest.mark.parametrize("case", [case for case in CASES if case.name != "local-only"], ids=lambda case: case.id)
@pytest.mark.parametrize("model", ["mlp", "contract_models:with_batch_norm"])
def test_bytes_are_exactly_those_of_a_run(case, model):
    settings = experiment(case.table, model__name=model, model__options={})
    plan = plan_of(settings)
    counted = prediction.count_bytes(plan, bytes_per_client(calibration.bench_for(plan)))
    run = fedsol.train(settings)
    assert sum(row["bytes_down"] for row in run.rows) == counted.total_down
    assert sum(row["bytes_up"] for row in run.rows) == counted.total_up
    assert {(row["bytes_down"], row["bytes_up"]) for row in run.rows} == {(counted.round_down, counted.round_up)}


@pytest.mark.parametrize("testers", [None, 2])
def test_bytes_of_tests_on_what_clients_held_out(testers):
    changes = {"rounds": 3, "data__partition__held_out": 0.2, "server__evaluate_clients": testers}
    settings = experiment({"name": "scaffold"}, server__evaluate_every=2, **changes)
    plan = plan_of(settings)
    counted = prediction.count_bytes(plan, bytes_per_client(calibration.bench_for(plan)))
    assert sum(row["bytes_down"] for row in fedsol.train(settings).rows) == counted.total_down


def test_a_method_without_rounds_is_refused():
    with pytest.raises(InputError, match="it has no rounds, and nothing travels"):
        plan_of(experiment({"name": "local-only"}))


def test_bytes_by_hand():
    """An mlp of 64 inputs, two hidden layers of 16 and 10 classes, in float32."""
    federation = build_federation(experiment({"name": "fedavg"}))
    model = 4 * (64 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10)
    assert bytes_per_client(federation) == (model, model, 0, model)
    scaffold = make_algorithm({"name": "scaffold"})
    assert bytes_per_client(federation, scaffold) == (2 * model, model + 8, model, model)
    assert bytes_per_client(federation, make_algorithm({"name": "moon"})) == (model, model, model, model)


def test_those_who_drop_out_send_nothing():
    plan = plan_of(experiment({"name": "fedavg"}, faults__dropout=0.5))
    traffic = bytes_per_client(calibration.bench_for(plan))
    counted = prediction.count_bytes(plan, traffic)
    assert counted.round_down == 3 * traffic.down
    assert counted.round_up == 1.5 * traffic.up


def test_costs_are_those_that_the_measurements_were_made_of():
    """A round of 0.5 s, a job of 2 s, a step of 0.1 s, and 0.01 s for each of 40 or 10 examples."""
    step = 0.1 + 40 * 0.01
    laps = Laps(
        short=0.5 + 2 + step,
        waves=0.5 + 3 * (2 + step),
        long=0.5 + 2 + 4 * step,
        narrow=0.5 + 2 + 4 * (0.1 + 10 * 0.01),
        server=0.3,
        evaluation=0.001,
    )
    found = calibration.costs_of(laps, 40, 10)
    expected = Costs(round=0.5, job=2, step=0.1, example=0.01, update=0.3, evaluation=0.001)
    assert vars(found) == pytest.approx(vars(expected))


def test_noise_makes_no_cost_negative():
    found = calibration.costs_of(Laps(1.0, 0.9, 0.8, 1.2, 0.0, 0.0), 40, 10)
    assert min(vars(found).values()) >= 0
    assert calibration.costs_of(Laps(1.0, 3.0, 4.0, 4.0, 0.0, 0.0), 1, 1).step == 1.0


def test_spread():
    assert calibration.spread_of([2.0, 2.0, 2.0]) == 0
    assert calibration.spread_of([float(value) for value in range(11)]) == pytest.approx((9 - 1) / 2 / 5)


def test_a_first_repeat_that_takes_long_is_the_only_one():
    plan = plan_of(experiment({"name": "fedavg"}))
    (found,) = calibration.calibrate([plan], Effort(seconds=0, fewest=2, most=2, enough=0.0))
    assert (found.repeats, found.spread) == (1, 0.0)
    (found,) = calibration.calibrate([plan], QUICK)
    assert found.repeats == 2


def test_makespan_deals_the_longest_first():
    assert prediction.makespan(np.array([1.0, 2.0, 3.0, 4.0]), 2) == 5.0
    assert prediction.makespan(np.array([1.0, 2.0, 3.0, 4.0]), 1) == 10.0
    assert prediction.makespan(np.array([3.0]), 4) == 3.0


COSTS = Costs(round=1.0, job=2.0, step=0.5, example=0.01, update=0.25, evaluation=0.001)
MEASURED = Calibration(COSTS, spread=0.1, repeats=5)


def test_seconds_on_this_machine_by_hand(missing):
    """6 equal clients of 120 samples in a round, in batches of 50 on 2 workers, 2 epochs; 5 rounds, 3 evaluations."""
    settings = missing.override(
        {"client.epochs": 2, "server.evaluate_every": 2, "engine.workers": 2, "client.batch_size": 50}
    )
    plan = plan_of(settings, clients=100, per_round=6, rounds=5, examples=120)
    found = prediction.seconds_here(plan, MEASURED)
    job = 2 + 2 * (3 * 0.5 + 120 * 0.01)
    assert found.training == pytest.approx(1 + 3 * job)
    assert found.server == 1.5
    assert found.evaluation == 10.0
    assert found.total == pytest.approx(5 * (1 + 3 * job + 1.5) + 3 * 10)


def test_unequal_clients_are_drawn_as_a_run_draws_them():
    settings = experiment({"name": "fedavg"}, rounds=3)
    plan = plan_of(settings)
    assert plan.sizes.tolist() == [len(indices) for indices in build_federation(settings).partition]
    run = fedsol.train(settings)
    assert list(prediction.drawn_rounds(plan)) == [row["client_ids"] for row in run.rows]
    jobs = prediction.job_seconds(plan, COSTS)
    expected = np.mean([jobs[row["client_ids"]].sum() for row in run.rows])
    assert prediction.seconds_here(plan, MEASURED).training == pytest.approx(1 + expected)


def test_a_deployment_by_hand(missing):
    plan = plan_of(missing.override({"client.epochs": 1}), clients=1000, per_round=10, rounds=200, examples=50)
    traffic = bytes_per_client(calibration.bench_for(plan))
    size = traffic.down
    memory = footprint.footprint(plan, calibration.bench_for(plan), traffic, process=100)
    network = Network(up=size / 8, down=size / 2, device_speed=0.5)
    found = prediction.deploy(plan, network, traffic, MEASURED, memory)
    assert (found.download, found.upload) == (2, 8)
    assert found.training == pytest.approx((2 + 0.5 + 50 * 0.01) / 0.5)
    assert found.server == pytest.approx(10 * 0.25 + 10)
    assert found.round == pytest.approx(2 + 6 + 8 + 12.5)
    assert found.total == pytest.approx(200 * found.round)
    assert found.client_rounds == pytest.approx(2)
    assert found.client_bytes == pytest.approx(2 * 2 * size)
    assert found.client_bytes_per_month == pytest.approx(30 * 86400 / 28.5 / 100 * 2 * size)
    narrow = replace(network, server_up=size, server_down=size / 2, interval=3600.0)
    found = prediction.deploy(plan, narrow, traffic, MEASURED, memory)
    assert (found.download, found.upload, found.round) == (10, 20, 3600)
    assert found.total == pytest.approx(199 * 3600 + 10 + 6 + 20 + 12.5)
    assert found.server_memory == 100 + (2 + 1) * size + 10 * size


def test_memory_by_hand(missing):
    adam = missing.override({"algorithm.name": "scaffold", "server.optimizer": "adam", "server.checkpoint_every": 2})
    plan = plan_of(adam, clients=1_000_000, per_round=10, rounds=3, examples=50)
    bench = calibration.bench_for(plan)
    traffic = bytes_per_client(bench)
    model = traffic.state
    found = footprint.footprint(plan, bench, traffic, process=1000)
    assert found.model == model
    assert found.data == 60_000 * (3 * 32 * 32 + 8)
    assert found.updates == 10 * (model + 8)
    assert found.server_state == 2 * (model + model + 2 * model) + 2 * model
    assert found.checkpoints == 2 * 4 * model
    touched = 1e6 * (1 - (1 - 1e-5) ** 3)
    assert found.states_on_disk == pytest.approx((touched + 20) * model, abs=1)
    assert found.states_in_memory == pytest.approx(touched * model, abs=1)
    assert found.server == 1000 + found.data + found.updates + found.server_state + found.states_in_memory
    many = footprint.footprint(replace(plan, experiment=plan.experiment.override({"rounds": 10**6})), bench, traffic, 0)
    assert many.states_in_memory == MEMORY_BUDGET


def test_the_state_of_clients_on_disk_is_what_a_run_writes(tmp_path):
    settings = experiment({"name": "scaffold"}, rounds=4)
    plan = plan_of(settings)
    bench = calibration.bench_for(plan)
    traffic = bytes_per_client(bench)
    found = footprint.footprint(plan, bench, traffic, 0)
    run = fedsol.train(settings, out=tmp_path)
    touched = {client for row in run.rows for client in row["client_ids"]}
    files = sum(path.stat().st_size for path in (tmp_path / "checkpoints" / "clients").iterdir())
    assert len(touched) * traffic.state <= files <= 1.2 * found.states_on_disk


def test_the_meter_counts_what_is_alive_at_the_same_time():
    meter = footprint.TensorMeter()
    with meter:
        first = torch.ones(1000)
        second = first + 1
        view = second[:10]
        view.add_(1)
        del first
        third = torch.zeros(500)
        del second, third, view
        torch.zeros(250)
    assert meter.peak == 8000


def test_a_step_needs_at_least_its_gradients_momentum_and_activations():
    """Weights, gradients and momentum, two hidden layers for 50 examples; not much more than that and the inputs."""
    bench = calibration.bench_for(plan_of(experiment({"name": "fedavg"})))
    model = bytes_per_client(bench).down
    assert 3 * model + 2 * 4 * 50 * 16 <= footprint.peak_of_tensors(bench) <= 5 * model + 4 * (4 * 50 * 64)


def test_data_that_is_missing_is_neither_downloaded_nor_needed(missing, tmp_path):
    plan = plan_of(missing, clients=30)
    assert not plan.data.is_real
    assert set(plan.sizes) == {1666, 1667}
    assert plan.sizes.sum() == 50_000
    assert "equal size" in " ".join(plan.assumptions)
    (found,) = prediction.estimate([plan], Network(), QUICK)
    assert found.seconds.total > 0
    assert found.deployment is None
    assert list(tmp_path.iterdir()) == []


def test_workers_and_local_are_both_measured(missing):
    plans = [plan_of(missing.override({"engine.kind": kind}), rounds=2) for kind in ("local", "workers")]
    both = prediction.estimate(plans, Network(up=1e6), QUICK)
    assert both[0].workers == 1
    assert all(one.seconds.round > 0 and one.deployment is not None for one in both)


@pytest.mark.parametrize(
    ("request_", "part"),
    [
        ({"clients": 0}, "--clients: 0 is not allowed: must be 1 or more"),
        ({"per_round": 101}, "--per-round: 101 is not allowed: there are 100 clients"),
        ({"per_round": -1}, "--per-round: -1"),
        ({"clients": 60_000}, "60000 is not allowed: cifar10 has 50000 samples; say with --examples"),
    ],
)
def test_numbers_that_no_federation_has(missing, request_, part):
    with pytest.raises(InputError, match=part):
        plan_of(missing, **request_)


def test_a_partition_of_its_own_needs_the_data_or_numbers(missing):
    own = missing.override({"data.partition.kind": "own"})
    with pytest.raises(InputError, match="does not say whose a sample is"):
        plan_of(own)
    with pytest.raises(InputError, match="needs --clients"):
        plan_of(own, examples=10)
    assert plan_of(own, examples=10, clients=7).sizes.tolist() == [10] * 7


@pytest.mark.parametrize(
    ("text", "rate"), [("10Mbit", 1.25e6), ("1.5 Gbit/s", 187.5e6), ("800kbit", 1e5), ("2MB", 2e6), ("8bit", 1)]
)
def test_bandwidths(text, rate):
    assert units.parse_bandwidth("--up", text) == rate


@pytest.mark.parametrize("text", ["10", "fast", "0Mbit", "-1Mbit", "10mbit", ""])
def test_what_is_no_bandwidth(text):
    with pytest.raises(InputError, match=r"--up: .* must be a bandwidth above 0 such as 10Mbit"):
        units.parse_bandwidth("--up", text)


def test_durations():
    assert [units.parse_duration("--interval", text) for text in ("30s", "10 min", "1.5h", "1d")] == [
        30,
        600,
        5400,
        86400,
    ]
    with pytest.raises(InputError, match="--interval: '10' is not allowed"):
        units.parse_duration("--interval", "10")


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
    assert units.show_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.0123, "12.3 ms"), (119, "119 s"), (600, "10 min"), (7200, "2 h"), (86400 * 12345, "12,345 d")],
)
def test_seconds_for_people(seconds, text):
    assert units.show_seconds(seconds) == text


def run_cli(*arguments):
    return CliRunner().invoke(app, ["estimate", "--set", "engine.kind=local", *arguments])


def test_the_command_shows_a_row_for_each_method_and_its_assumptions(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    done = run_cli("-a", "fedavg,scaffold:steps=plain", "--up", "10Mbit", "--rounds", "7")
    assert done.exit_code == 0, done.output
    assert done.output.count("│ fedavg ") == 4
    assert done.output.count("│ scaffold:steps=plain ") == 4
    assert "20 clients, 4 in a round, 7 rounds" in done.output
    assert "stragglers" in done.output
    assert "not limited, as not stated: --down, --server-up, --server-down" in done.output


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
        (["--up", "fast"], "--up: 'fast' is not allowed"),
        (["--server-down", "3"], "--server-down: '3' is not allowed"),
        (["--device-speed", "0"], "--device-speed: 0.0 is not allowed: must be above 0"),
        (["--interval", "soon"], "--interval: 'soon' is not allowed"),
        (["--rounds", "0"], "--rounds: 0 is not allowed"),
        (["-a", "fedsoll"], "fedsol"),
        (["nowhere.toml"], "nowhere.toml"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, part):
    done = run_cli(*arguments)
    assert done.exit_code == 2
    assert part in done.output
    assert "Traceback" not in done.output
