"""DP-SGD on the nodes of a deployment: their noise, their accounts, and what they refuse to tell."""

import json
import math
import shutil
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is an optional dependency: pip install 'fedsol[flower]'")

from flwr.app import MetricRecord, RecordDict

import fedsol
from fedsol.core.messages import Job, Update
from fedsol.engines.flower import records
from fedsol.engines.flower.grid import GridEngine
from fedsol.errors import InputError, RunError
from fedsol.federation.federation import build_federation
from fedsol.federation.personal import PersonalSettings
from fedsol.federation.tasks import EvaluateClient, Personalize, Train
from fedsol.privacy.accounting import Mechanism
from fedsol.privacy.noise import FROM_SYSTEM
from fedsol.training.private import private_rounds, with_privacy
from fedsol.training.private_samples import DeployedSamples
from tests.support.cases import WITH_BATCH_NORM, experiment
from tests.support.fake_grid import FakeGrid, clients_of, deployed, simulated
from tests.support.private import save
from tests.support.private import settings as private_data
from tests.support.runs import StopAfter, assert_same_run, trained
from tests.support.tensors import same_tensors

EXAMPLE = {"privacy__level": "example", "privacy__noise_multiplier": 1.5, "client__epochs": 1, "rounds": 3}


def example(**changes):
    return experiment({"name": "fedavg"}, **{**EXAMPLE, "server__fraction": 1.0, **changes})


def accounts(folder):
    """How many noised steps each client's node has counted."""
    found = sorted(folder.glob("states/*/client-*/privacy.json"))
    return [json.loads(path.read_text())["releases"] for path in found]


def epsilons(settings, rounds):
    """What each client has spent after so many rounds, from the definition alone."""
    federation = build_federation(settings)
    sizes = [len(federation.training_samples(client)) for client in range(federation.clients)]
    return [Mechanism(min(50, n), n, 1.5).epsilon(rounds * -(-n // 50), 1e-5) for n in sizes]


def test_every_node_has_an_account_and_its_noise_follows_from_no_seed(tmp_path):
    settings = example()
    one, _ = deployed(settings, tmp_path / "one")
    other, _ = deployed(settings, tmp_path / "other")
    assert not same_tensors(one.weights, other.weights)
    for row in one.rows:
        expected = epsilons(settings, row["round"])
        assert row["client_epsilon"] == expected
        assert row["client_epsilon_next"] == epsilons(settings, row["round"] + 1)
        assert (row["epsilon"], row["delta"]) == (max(expected), 1e-5)
        assert row["epsilon_next"] == max(row["client_epsilon_next"])
        assert (row["unit"], row["noise"]) == ("sample", FROM_SYSTEM)
    sizes = [len(build_federation(settings).training_samples(client)) for client in range(4)]
    assert accounts(tmp_path / "one") == [3 * -(-n // 50) for n in sizes]
    summary = json.loads((tmp_path / "one" / "run" / "summary.json").read_text())
    assert (summary["epsilon"], summary["delta"], summary["noise"]) == (one.rows[-1]["epsilon"], 1e-5, FROM_SYSTEM)


def test_on_simulated_nodes_the_noise_is_that_of_the_seed():
    settings = example(data__partition__held_out=0.2)
    assert_same_run(simulated(settings)[0], trained(settings))


def test_what_leaves_a_node_is_weights_counts_and_what_it_has_spent(tmp_path):
    settings = example(rounds=1)
    grid, sent = FakeGrid(clients_of(settings), tmp_path / "states"), []
    grid.changed = lambda node, message, content: sent.append(content) or content
    run, _ = deployed(settings, tmp_path, grid)
    for content in sent:
        assert content.keys() == {records.WEIGHTS, records.METRICS}
        assert set(content[records.METRICS]) == {"examples", "steps", "epsilon", "epsilon_next"}
    assert len(sent) == 4
    assert run.rows[0]["train_loss"] is None


def test_noise_and_batches_of_a_node_do_not_come_from_the_seed(tmp_path, monkeypatch):
    """The same system randomness gives the same weights; without noise, only the batches remain to differ."""
    settings = example(rounds=1, privacy__noise_multiplier=0.0, client__batch_size=5)
    one, _ = deployed(settings, tmp_path / "one")
    other, _ = deployed(settings, tmp_path / "other")
    assert not same_tensors(one.weights, other.weights)
    assert one.rows[0]["epsilon"] is None
    monkeypatch.setattr(
        "fedsol.federation.private_steps.secret_sample", lambda count, total: list(range(total - count, total))
    )
    again, _ = deployed(settings, tmp_path / "again")
    same, _ = deployed(settings, tmp_path / "same")
    assert same_tensors(again.weights, same.weights)


def test_an_account_outlives_kills_copies_and_more_rounds(tmp_path):
    settings = example(server__checkpoint_every=2)
    grid = FakeGrid(4, tmp_path / "states")
    with pytest.raises(KeyboardInterrupt):
        deployed(settings, tmp_path, grid, callbacks=[StopAfter(1)])
    shutil.copytree(tmp_path / "run", tmp_path / "copy" / "run")
    whole, _ = deployed(settings, tmp_path, FakeGrid(4, tmp_path / "states"), resume=True)  # restarted nodes
    assert whole.rows[-1]["client_epsilon"] == epsilons(settings, 3)
    longer, _ = deployed(settings.override({"rounds": 4}), tmp_path, grid, resume=True)
    assert longer.rows[-1]["client_epsilon"] == epsilons(settings, 4)
    copy = tmp_path / "copy"
    (copy / "run" / "metrics.jsonl").write_text("")  # whatever becomes of the server's files
    shutil.rmtree(copy / "run" / "checkpoints")
    (copy / "run" / "summary.json").unlink()
    again, _ = deployed(settings, copy, grid, resume=True)
    assert [row["client_epsilon"] for row in again.rows] == [epsilons(settings, rounds) for rounds in (5, 6, 7)]
    assert len({path.parent for path in tmp_path.glob("states/*/client-000000")}) == 1


def test_a_job_whose_answer_is_lost_is_paid_for_all_the_same(tmp_path):
    settings = example(rounds=2, engine__timeout=0.01)
    grid = FakeGrid(4, tmp_path / "states")
    lost = list(grid.apps)[1]
    grid.changed = lambda node, message, content: (
        None if node == lost and records.job_from(message.content).round == 1 else content
    )
    run, _ = deployed(settings, tmp_path, grid)
    assert [row["clients"] for row in run.rows] == [3, 4]
    assert run.rows[0]["client_epsilon"][1] == 0  # as far as the server knows
    assert run.rows[1]["client_epsilon"] == epsilons(settings, 2)


def test_a_node_abstains_where_it_would_exceed_the_budget_and_the_others_go_on(tmp_path, caplog):
    uneven = {"data__partition__kind": "quantity", "data__partition__alpha": 0.4, "client__batch_size": 50}
    after = [epsilons(example(**uneven), rounds) for rounds in range(1, 10)]
    order = sorted(after[1])
    budget = (order[-2] + order[-1]) / 2  # all but one can pay for two rounds
    settings = example(**uneven, rounds=9, privacy__epsilon=budget)
    run, _ = deployed(settings, tmp_path)
    paying = [sum(epsilon <= budget for epsilon in spent) for spent in after]
    assert paying[:2] == [4, 3]
    assert paying[-1] == 0
    expected = [(paid, 4 - paid, 0) for paid in paying if paid]
    assert [(row["clients"], row["dropped"], row["rejected"]) for row in run.rows] == expected
    poor = after[1].index(order[-1])
    assert f"no update from client {poor}: it would spend epsilon = {order[-1]:.4g}, more than" in caplog.text
    assert run.rows[-1]["epsilon"] <= budget < run.rows[-1]["epsilon_next"]
    assert run.is_finished
    assert "one more round would make epsilon" in run.stopped.reason
    counted = accounts(tmp_path)
    assert len(deployed(settings, tmp_path, resume=True)[0].rows) == len(expected)
    assert accounts(tmp_path) == counted


def test_a_node_has_a_limit_of_its_own_for_all_runs(tmp_path, caplog):
    settings = example(rounds=1)
    grid = FakeGrid(4, tmp_path)
    limit = 1.5 * max(epsilons(settings, 1))
    for client, config in enumerate(grid.configs.values()):
        config |= {"max-epsilon": limit, "state-dir": str(tmp_path / f"node{client}")}
    assert deployed(settings, tmp_path / "first", grid)[0].rows[0]["clients"] == 4
    with pytest.raises(RunError, match="round 1: all of its clients abstained"):
        deployed(settings, tmp_path / "second", grid)
    assert f"together, more than max-epsilon = {limit:g} in the node's configuration" in caplog.text


def test_a_server_gets_no_round_by_a_delta_by_which_every_epsilon_is_small(tmp_path, caplog):
    settings = example(rounds=1, privacy__delta=0.9)
    assert Mechanism(50, 300, 1.5).epsilon(10, 0.9) == 0
    grid = FakeGrid(4, tmp_path / "states")
    for config in grid.configs.values():
        config["max-epsilon"] = 1.0
    with pytest.raises(RunError, match="round 1: all of its clients abstained"):
        deployed(settings, tmp_path, grid)
    assert "its runs would spend delta = 0.9 together, more than max-delta = 0.0001 in the node's" in caplog.text
    assert accounts(tmp_path) == []


def test_the_deltas_of_all_runs_add_up(tmp_path, caplog):
    settings = example(rounds=1, privacy__delta=1e-3)
    grid = FakeGrid(4, tmp_path)
    for client, config in enumerate(grid.configs.values()):
        config |= {"max-epsilon": 1e3, "max-delta": 2e-3, "state-dir": str(tmp_path / f"node{client}")}
    for name in ("first", "second"):
        assert deployed(settings, tmp_path / name, grid)[0].rows[0]["clients"] == 4
    with pytest.raises(RunError, match="round 1: all of its clients abstained"):
        deployed(settings, tmp_path / "third", grid)
    assert "its runs would spend delta = 0.003 together, more than max-delta = 0.002 in the node's" in caplog.text


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (8, "max-epsilon is set in its configuration, and the experiment has no privacy of samples"),
        ("8", "max-epsilon: must be greater than 0 in the node's configuration (got '8')"),
        (-1.0, "max-epsilon: must be greater than 0 in the node's configuration (got -1.0)"),
    ],
)
def test_a_node_with_a_limit_takes_part_in_nothing_else(limit, reason, tmp_path, caplog):
    grid = FakeGrid(4, tmp_path / "states")
    grid.configs[next(iter(grid.apps))]["max-epsilon"] = limit
    run, _ = deployed(experiment({"name": "fedavg"}, rounds=1, server__fraction=1.0), tmp_path, grid)
    assert (run.rows[0]["clients"], run.rows[0]["dropped"]) == (3, 1)
    assert reason in caplog.text


def test_a_limit_of_delta_alone_is_a_mistake(tmp_path, caplog):
    grid = FakeGrid(4, tmp_path / "states")
    grid.configs[next(iter(grid.apps))]["max-delta"] = 1e-5
    run, _ = deployed(example(rounds=1), tmp_path, grid)
    assert (run.rows[0]["clients"], run.rows[0]["dropped"]) == (3, 1)
    assert "max-epsilon: is missing in the node's configuration, which has max-delta" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [{"privacy.noise_multiplier": 9.0}, {"privacy.epsilon": 900.0}, {"privacy.delta": 1e-2}, {"client.batch_size": 1}],
)
def test_a_server_that_changes_the_settings_of_a_run_gets_nothing(changes, tmp_path, caplog):
    settings = example(rounds=1, privacy__epsilon=100.0)
    deployed(settings, tmp_path)
    federation = with_privacy(build_federation(settings.override({**changes, "rounds": 2})))
    engine = GridEngine(federation, FakeGrid(4, tmp_path / "states"), tmp_path / "run")
    counted = accounts(tmp_path)
    answers = [answer for _, answer in engine.run(jobs_of(federation))]
    assert all(answer.abstained for answer in answers)
    assert all("its account of this run began with other settings" in answer.reason for answer in answers)
    assert accounts(tmp_path) == counted


def jobs_of(federation):
    server = federation.sending(federation.initial_server())
    return [Train(Job(client, 2, server.weights)) for client in range(4)]


@pytest.mark.parametrize("content", ["", "{}", '{"releases": 0}'])
def test_a_damaged_account_is_no_new_one(content, tmp_path):
    settings = example(rounds=1)
    deployed(settings, tmp_path)
    (path,) = tmp_path.glob("states/*/client-000001/privacy.json")
    path.write_text(content)
    run, _ = deployed(settings.override({"rounds": 2}), tmp_path, resume=True)
    assert (run.rows[-1]["clients"], run.rows[-1]["dropped"]) == (3, 1)
    assert path.read_text() == content


def test_a_node_whose_account_is_gone_is_rejected(tmp_path, caplog):
    settings = example(rounds=2)
    deployed(settings, tmp_path)
    for path in tmp_path.glob("states/*/client-000001/privacy.json"):
        path.unlink()
    run, _ = deployed(settings.override({"rounds": 3}), tmp_path, resume=True)
    assert (run.rows[-1]["clients"], run.rows[-1]["rejected"]) == (3, 1)
    assert "the update of client 1 is rejected: it has spent epsilon = " in caplog.text
    assert run.rows[-1]["client_epsilon"][1] == run.rows[1]["client_epsilon"][1]


@pytest.mark.parametrize("values", [{"epsilon": math.nan}, {"epsilon": -1.0}, {"train_loss": 1.0}, {"epsilon": [1.0]}])
def test_a_node_that_says_nonsense_about_its_account_is_rejected(values, tmp_path):
    settings = example(rounds=1)
    grid = FakeGrid(4, tmp_path / "states")
    bad = next(iter(grid.apps))

    def changed(node, message, content):
        metrics = MetricRecord({**content.metric_records[records.METRICS], **values})
        return RecordDict({**content, records.METRICS: metrics}) if node == bad else content

    grid.changed = changed
    run, _ = deployed(settings, tmp_path, grid)
    assert (run.rows[0]["clients"], run.rows[0]["rejected"]) == (3, 1)


def test_a_node_tells_no_results_on_its_samples(tmp_path):
    settings = example(rounds=1, data__partition__held_out=0.2)
    with pytest.raises(InputError, match=r"data\.partition\.held_out: must be 0 with privacy\.level = 'example'"):
        deployed(settings, tmp_path)


def test_what_a_server_may_not_ask_it_does_not_get(tmp_path):
    """A server that is not fedsol's own may ask for tests all the same."""
    settings = example(rounds=1, data__partition__held_out=0.2)
    federation = with_privacy(build_federation(settings))
    engine = GridEngine(federation, FakeGrid(4, tmp_path / "states"), tmp_path / "run")
    run = fedsol.train(settings, out=tmp_path / "run")
    tasks = [
        EvaluateClient(run.weights, 0),
        Personalize(run.weights, 0, PersonalSettings(test="held-out", after_round=1)),
    ]
    for task in tasks:
        ((_, answer),) = engine.run([task])
        assert "the node failed" in answer.reason


def test_with_data_of_their_own(tmp_path):
    changes = {
        "privacy__level": "example",
        "data__partition__held_out": 0,
        "algorithm__name": "fedavg",
        "engine__kind": "flower",
    }
    with pytest.raises(InputError, match=r"privacy\.noise_multiplier: is missing; only the nodes of private data"):
        with_privacy(build_federation(private_data(**changes, privacy__epsilon=3.0)))
    settings = private_data(**changes, privacy__epsilon=300.0, privacy__noise_multiplier=1.0, rounds=2)
    grid = FakeGrid(2, tmp_path / "states")
    sizes = (12, 20)
    for config, count in zip(grid.configs.values(), sizes, strict=True):
        config["data"] = save(tmp_path / f"{count}.npz", [number % 3 for number in range(count)])
    run, _ = deployed(settings, tmp_path, grid)
    expected = [Mechanism(min(50, n), n, 1.0).epsilon(2 * settings.client.epochs, 1e-5) for n in sizes]
    assert run.rows[-1]["client_epsilon"] == expected


def test_what_the_server_knows_of_accounts():
    settings = example(privacy__epsilon=4.0, privacy__noise_multiplier=9.0)
    rounds = private_rounds(with_privacy(build_federation(settings)), Path("run"))
    assert isinstance(rounds, DeployedSamples)

    def tell(client, epsilon, after):
        return rounds.receive(Update(client, {}, 1, 1, metrics={"epsilon": epsilon, "epsilon_next": after}))

    assert (rounds.epsilon, rounds.epsilon_next, rounds.is_spent) == (0, 0, False)
    assert tell(0, 3.0, 5.0) is None
    assert (rounds.epsilon, rounds.epsilon_next) == (3.0, 3.0)  # the others may have something left
    for client, after in ((1, 3.5), (2, 4.5), (3, 6.0)):
        assert tell(client, 2.0, after) is None
    assert (rounds.epsilon_next, rounds.is_spent) == (3.5, False)
    assert tell(1, 3.5, 5.5) is None
    assert (rounds.epsilon, rounds.epsilon_next, rounds.is_spent) == (3.5, 4.5, True)
    assert tell(1, 1.0, 2.0) == "has spent epsilon = 1, less than the 3.5 that it had before"
    assert tell(2, 4.1, 9.0) == "has spent epsilon = 4.1, more than privacy.epsilon = 4"  # and ends no run by that
    assert (rounds.epsilon, rounds.epsilon_next) == (3.5, 4.5)
    assert rounds.told[1].epsilon == 3.5


def test_running_statistics_are_refused_even_at_home():
    with pytest.raises(InputError, match="running statistics"):
        with_privacy(build_federation(example(**WITH_BATCH_NORM, server__exchange="not-norms")))
