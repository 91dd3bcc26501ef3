"""Jobs and updates as Flower messages: every method the same bit for bit, and nodes that fail cost only themselves."""

import io
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is an optional dependency: pip install 'fedsol[flower]'")

from flwr.app import ArrayRecord, Error, Message, MetricRecord, RecordDict

import fedsol
from fedsol.core.messages import Job, Update, state_reference
from fedsol.core.weights import norm, subtract
from fedsol.engines.flower import records
from fedsol.engines.flower.client import NodeStates
from fedsol.errors import InputError, RunError
from fedsol.federation.evaluation import Tally
from fedsol.federation.federation import build_federation
from fedsol.federation.tasks import Train
from fedsol.privacy.noise import FROM_SYSTEM
from tests.support.cases import WITH_BATCH_NORM, experiment, loop_cases
from tests.support.fake_grid import FakeGrid, clients_of, deployed, over_the_wire, simulated
from tests.support.runs import StopAfter, assert_same_run, trained


@loop_cases
def test_every_method_is_bitwise_the_in_process_engine_through_messages(case):
    settings = experiment(case.table)
    assert_same_run(simulated(settings)[0], trained(settings))


@pytest.mark.parametrize("name", ["fedsol", "scaffold", "fednova", "feddyn", "moon"])
def test_with_states_that_stay_on_their_nodes_too(name, tmp_path):
    settings = experiment({"name": name}, rounds=4, data__partition__held_out=0.2)
    run, _ = deployed(settings, tmp_path)
    assert_same_run(run, trained(settings))
    assert all(row["restarted"] == 0 for row in run.rows)


def test_a_model_with_running_statistics():
    settings = experiment({"name": "fedsol"}, **WITH_BATCH_NORM)
    assert_same_run(simulated(settings)[0], trained(settings))


class StopBefore(fedsol.Callback):
    """Stops a run in the middle of a round, when its clients have been trained but nothing is kept yet."""

    def __init__(self, round_number):
        self.round = round_number

    def client_finished(self, update):
        if update.metrics and self.now == self.round:
            self.seen += 1
            if self.seen == 3:
                raise KeyboardInterrupt

    def round_started(self, round_number, clients):
        self.now, self.seen = round_number, 0


def test_a_round_that_is_repeated_uses_the_states_of_the_round_before(tmp_path):
    """Nodes have kept states of a round that the server never finished; they are not what it asks for."""
    settings = experiment({"name": "scaffold"}, rounds=4)
    grid = FakeGrid(clients_of(settings), tmp_path / "states")
    with pytest.raises(KeyboardInterrupt):
        deployed(settings, tmp_path, grid, callbacks=[StopBefore(3)])
    run, _ = deployed(settings, tmp_path, grid, resume=True)
    assert_same_run(run, trained(settings))


def test_a_node_that_lost_its_state_starts_over_and_is_counted(tmp_path):
    settings = experiment({"name": "scaffold"}, rounds=4, server__fraction=1.0)
    grid = FakeGrid(clients_of(settings), tmp_path / "states")

    class Lose(fedsol.Callback):
        def round_finished(self, result):
            if result.round == 2:
                (lost,) = (tmp_path / "states").glob("*/client-000001/round-000002.safetensors")
                lost.write_bytes(b"damaged")
                (gone,) = (tmp_path / "states").glob("*/client-000002/round-000002.safetensors")
                gone.unlink()

    run, _ = deployed(settings, tmp_path, grid, callbacks=[Lose()])
    assert [row["restarted"] for row in run.rows] == [0, 0, 2, 0]
    assert [row["rejected"] for row in run.rows] == [0, 0, 0, 0]
    assert run.rows[-1]["test_loss"] != fedsol.train(settings).rows[-1]["test_loss"]


def test_resume_is_exact_however_seldom_checkpoints_are(tmp_path):
    """The server goes back several rounds; nodes still have the states of that time (a copy is resumed)."""
    settings = experiment({"name": "scaffold"}, rounds=9, server__fraction=0.5, server__checkpoint_every=4)
    grid = FakeGrid(clients_of(settings), tmp_path / "states")

    class Copy(fedsol.Callback):
        def round_finished(self, result):
            if result.round == 7:
                shutil.copytree(tmp_path / "run", tmp_path / "killed" / "run")

    whole, _ = deployed(settings, tmp_path, grid, callbacks=[Copy()])
    again, _ = deployed(settings, tmp_path / "killed", grid, resume=True)
    assert_same_run(again, whole)
    assert all(row["restarted"] == 0 for row in again.rows)


def test_a_node_that_comes_back_under_another_id_is_found(tmp_path):
    settings = experiment({"name": "fedavg"}, rounds=4, server__fraction=1.0, engine__patience=0.0)
    grid = FakeGrid(clients_of(settings), tmp_path / "states")
    old, new = next(iter(grid.apps)), 999_999

    class Restart(fedsol.Callback):
        def round_finished(self, result):
            if result.round == 1:  # the new one is there while the old one still counts as connected
                grid.apps[new], grid.configs[new] = grid.apps[old], grid.configs[old]
            if result.round == 2:
                grid.offline.add(old)

    run, _ = deployed(settings, tmp_path, grid, callbacks=[Restart()])
    assert [row["dropped"] for row in run.rows] == [0, 0, 0, 0]


def test_a_round_whose_nodes_are_all_gone_stops_the_run_and_tests_do_not_wait(tmp_path):
    changes = {"engine__patience": 0.0, "engine__timeout": 0.01, "data__partition__held_out": 0.2, "rounds": 3}
    settings = experiment({"name": "fedavg"}, server__fraction=1.0, **changes)
    grid = FakeGrid(clients_of(settings), tmp_path / "states")
    grid.offline.add(list(grid.apps)[1])

    class Leave(fedsol.Callback):
        def round_finished(self, result):
            if result.round == 2:
                grid.offline |= set(grid.apps)

    with pytest.raises(RunError, match="round 3: no node of its clients is connected"):
        deployed(settings, tmp_path, grid, callbacks=[Leave()])
    grid.offline.clear()
    run, _ = deployed(settings, tmp_path, grid, resume=True)
    assert [row["held_out_clients"] for row in run.rows] == [3, 3, 4]
    assert run.rows[0]["bytes_down"] == run.rows[2]["bytes_down"] * 6 // 8  # three were trained and three tested


def test_private_data_goes_through_a_run_directory_and_resumes(tmp_path):
    """Nodes with data of their own; the server has none, and no test set."""
    settings = fedsol.Experiment().override(
        {
            "rounds": 3,
            "data.name": "private",
            "data.private.shape": [1, 8, 8],
            "data.private.classes": 3,
            "data.partition.clients": 2,
            "data.partition.held_out": 0.25,
            "model.name": "mlp",
            "algorithm.name": "scaffold",
        }
    )
    grid = FakeGrid(2, tmp_path / "states")
    for client, node in enumerate(grid.apps):
        path = tmp_path / f"{client}.npz"
        images = np.random.default_rng(client).integers(0, 255, (40, 8, 8)).astype(np.uint8)
        np.savez(path, x_train=images, y_train=np.arange(40) % 3)
        grid.configs[node]["data"] = str(path)
    with pytest.raises(KeyboardInterrupt):
        deployed(settings, tmp_path, grid, callbacks=[StopAfter(2)])
    run, _ = deployed(settings, tmp_path, grid, resume=True)
    assert [(row["clients"], row["examples"], row["held_out_clients"]) for row in run.rows] == [(2, 60, 2)] * 3
    assert run.final_accuracy is None
    saved, unseen = fedsol.load(run.path), images[:5]
    assert saved.predict(unseen).labels.tolist() == run.predict(unseen).labels.tolist()
    assert [len(samples) for samples in saved.partition.partition] == [0, 0]
    del grid.configs[next(iter(grid.apps))]["data"]
    more = settings.override({"rounds": 4, "server.min_updates": 1})
    run, _ = deployed(more, tmp_path / "more", grid)
    assert [row["dropped"] for row in run.rows] == [1] * 4


def test_what_goes_wrong_on_a_node_stays_on_the_node(tmp_path, caplog):
    settings = experiment({"name": "scaffold"}, rounds=1, server__fraction=1.0)
    grid = FakeGrid(clients_of(settings), tmp_path / "states")
    (tmp_path / "file").touch()
    grid.configs[list(grid.apps)[1]]["state-dir"] = str(tmp_path / "file" / "secret-place")
    run, _ = deployed(settings, tmp_path, grid)
    assert run.rows[0]["dropped"] == 1
    said = [record.getMessage() for record in caplog.records if record.name == "fedsol.training.updates"]
    assert said == ["round 1: no update from client 1: the node failed; its own log says why"]


@pytest.mark.parametrize("run", ["../../outside", "/absolute", "", "x" * 32])
def test_a_server_cannot_choose_where_a_node_writes(run, tmp_path, caplog):
    settings = experiment({"name": "scaffold"})
    grid = FakeGrid(clients_of(settings), tmp_path / "states")
    federation = build_federation(settings)
    job = Job(0, 1, federation.initial_weights(), federation.algorithm.init_server(federation.initial_weights()))
    config = {"experiment": settings.to_toml(), "run": run, "oldest": 0}
    content = records.task_records(
        Train(replace(job, state=state_reference(0))), records.to_arrays(job.weights), config
    )
    grid.push_messages([Message(content, next(iter(grid.apps)), "train")])
    ((_, reply),) = grid._replies.items()
    assert reply.error.reason == "the node failed; its own log says why"
    assert "run: must be the id of a run" in caplog.text
    assert not (tmp_path / "states").exists()


def test_nothing_is_told_to_anyone():
    check = "import fedsol.engines.flower.simulation as s; from flwr.supercore import telemetry as t"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLWR")}
    command = [sys.executable, "-c", f"{check}; assert t.FLWR_TELEMETRY_ENABLED == '0'"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_two_runs_of_one_experiment_do_not_share_states(tmp_path):
    settings = experiment({"name": "scaffold"}, rounds=2)
    grid = FakeGrid(clients_of(settings), tmp_path / "states")
    first, _ = deployed(settings, tmp_path / "a", grid)
    second, _ = deployed(settings, tmp_path / "b", grid)
    assert_same_run(first, second)


def arrays_of(content, change):
    tensors = records.from_arrays(content.array_records[records.WEIGHTS])
    name = next(iter(tensors))
    tensors[name] = change(tensors[name])
    return RecordDict({**content, records.WEIGHTS: records.to_arrays(tensors)})


def metrics_of(content, **changes):
    values = {**content.metric_records[records.METRICS], **changes}
    return RecordDict({**content, records.METRICS: MetricRecord(values)})


REJECTED = {
    "not finite": lambda content: arrays_of(content, lambda tensor: tensor * math.nan),
    "wrong shape": lambda content: arrays_of(content, lambda tensor: tensor[:1]),
    "wrong type": lambda content: arrays_of(content, lambda tensor: tensor.double()),
    "no weights": lambda content: RecordDict({records.METRICS: content[records.METRICS]}),
    "no metrics": lambda content: RecordDict({records.WEIGHTS: content[records.WEIGHTS]}),
    "empty": lambda content: RecordDict(),
    "no number of examples": lambda content: metrics_of(content, examples=[1, 2]),
    "no example": lambda content: metrics_of(content, examples=0),
    "absurdly far": lambda content: arrays_of(content, lambda tensor: tensor + 1e12),
    "loss not finite": lambda content: metrics_of(content, train_loss=math.inf),
    "a payload nobody asked for": lambda content: RecordDict(
        {**content, "payload": records.to_arrays({"x": torch.zeros(1)})}
    ),
    "a state nobody asked for": lambda content: RecordDict(
        {**content, "state": records.to_arrays({"x": torch.zeros(1)})}
    ),
    "bytes that are no array": lambda content: with_bytes(content, b"\x80\x04nonsense"),
    "no bytes": lambda content: with_bytes(content, b""),
    "an archive": lambda content: with_bytes(content, b"PK\x03\x04" + bytes(100)),
    "a header that claims more than there is": lambda content: with_bytes(content, header((10**13,))),
    "examples that are no number": lambda content: metrics_of(content, examples=math.nan),
    "endless examples": lambda content: metrics_of(content, examples=math.inf),
    "endless steps": lambda content: metrics_of(content, steps=math.inf),
    "more examples than there can be": lambda content: metrics_of(content, examples=2**62),
}


def with_bytes(content: RecordDict, data: bytes) -> RecordDict:
    arrays = dict(content.array_records[records.WEIGHTS])
    name = next(iter(arrays))
    arrays[name] = replace(arrays[name], data=data)
    return RecordDict({**content, records.WEIGHTS: ArrayRecord(arrays)})


def header(shape):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return stream.getvalue()


@pytest.mark.parametrize("what", REJECTED)
def test_a_node_that_answers_nonsense_is_rejected_and_the_round_goes_on(what, tmp_path, caplog):
    settings = experiment({"name": "fedsol"}, server__fraction=1.0)
    grid = FakeGrid(clients_of(settings), tmp_path / "states")
    bad = list(grid.apps)[1]
    grid.changed = lambda node, message, content: REJECTED[what](content) if node == bad else content
    run, _ = deployed(settings, tmp_path, grid)
    assert [row["rejected"] for row in run.rows] == [1, 1]
    assert [row["clients"] for row in run.rows] == [clients_of(settings) - 1] * 2
    assert "the update of client 1 is rejected: it has" in caplog.text or "it was trained on no" in caplog.text
    assert all(bool(torch.isfinite(tensor).all()) for tensor in run.weights.values())


def test_nodes_that_fail_or_do_not_answer_cost_only_their_own_updates(tmp_path, caplog):
    settings = experiment({"name": "fedsol"}, server__fraction=1.0, engine__timeout=0.01, engine__patience=0.0)
    grid = FakeGrid(clients_of(settings), tmp_path / "states")
    nodes = list(grid.apps)
    grid.offline.add(nodes[0])

    def change(node, message, content):
        return {nodes[1]: None, nodes[2]: Error(8, "it crashed")}.get(node, content)

    grid.changed = change
    run, _ = deployed(settings, tmp_path, grid)
    assert [row["dropped"] for row in run.rows] == [3, 3]
    assert [row["rejected"] for row in run.rows] == [0, 0]
    for reason in ("no answer in time", "it crashed", "its node is not connected"):
        assert reason in caplog.text


def test_a_client_that_fails_in_a_simulation_stops_the_run(tmp_path):
    settings = experiment({"name": "fedsol"}, engine__timeout=0.01)

    def change(grid):
        grid.changed = lambda node, message, content: None

    with pytest.raises(RunError, match=r"client \d+ failed in Flower's simulation: no answer in time"):
        simulated(settings, change)


def test_a_simulation_waits_for_nodes_that_are_still_starting_even_to_evaluate():
    """`local-only` has no training that would wait for them first."""
    settings = experiment({"name": "local-only"}, data__partition__held_out=0.2)

    def change(grid):
        grid.offline, polls, connected = set(grid.apps), iter(range(3)), grid.get_node_ids

        def get_node_ids():
            if next(polls, None) is None:
                grid.offline.clear()
            return connected()

        grid.get_node_ids = get_node_ids

    run, _ = simulated(settings, change)
    assert run.rows[-1]["held_out_clients"] == clients_of(settings)


def test_nodes_with_wrong_or_doubled_ids_are_left_out(tmp_path, caplog):
    settings = experiment({"name": "fedavg"}, server__fraction=1.0, engine__patience=0.0)
    clients = clients_of(settings)
    grid = FakeGrid(clients, tmp_path / "states")
    nodes = list(grid.apps)
    grid.configs[nodes[1]]["partition-id"] = 0
    grid.configs[nodes[2]]["partition-id"] = clients
    run, _ = deployed(settings, tmp_path, grid)
    assert [row["clients"] for row in run.rows] == [clients - 2] * 2
    assert f"node {nodes[1]} is client 0, like another node; the first one is used" in caplog.text
    assert f"node {nodes[2]} is ignored: its partition-id must be 0 to {clients - 1}" in caplog.text


@pytest.mark.parametrize("number", [None, True, -1, "2"])
def test_a_node_without_a_number_says_so_and_the_others_go_on(number, tmp_path, caplog):
    settings = experiment({"name": "fedavg"}, server__fraction=1.0, engine__patience=0.0)
    clients = clients_of(settings)
    grid = FakeGrid(clients, tmp_path / "states")
    first = next(iter(grid.apps))
    grid.configs[first]["partition-id"] = number
    run, _ = deployed(settings, tmp_path, grid)
    assert [row["clients"] for row in run.rows] == [clients - 1] * 2
    assert f"node {first} did not say which client it is" in caplog.text


def test_nodes_that_are_long_in_coming_are_waited_for_with_a_word(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("fedsol.engines.flower.nodes.SECONDS_OF_SILENCE", 0.0)
    settings = experiment({"name": "fedavg"}, server__fraction=1.0, engine__patience=0.2)
    clients = clients_of(settings)
    grid = FakeGrid(clients, tmp_path / "states")
    grid.offline = {next(iter(grid.apps))}
    run, _ = deployed(settings, tmp_path, grid)
    assert [row["clients"] for row in run.rows] == [clients - 1] * 2
    assert f"waiting for nodes: {clients - 1} of {clients} are connected" in caplog.text


def test_messages_that_flower_does_not_accept_stop_the_run():
    settings = experiment({"name": "fedavg"})

    def change(grid):
        grid.push_messages = lambda messages: []

    with pytest.raises(RunError, match="Flower did not accept the messages of this round"):
        simulated(settings, change)


def test_a_node_refuses_to_play_another_client():
    settings = experiment({"name": "fedavg"})
    grid = FakeGrid(clients_of(settings))
    job = Job(client=2, round=1, weights=build_federation(settings).initial_weights())
    content = records.task_records(Train(job), records.to_arrays(job.weights), {"experiment": settings.to_toml()})
    grid.push_messages([Message(content, next(iter(grid.apps)), "train")])
    ((_, reply),) = grid._replies.items()
    assert "must be this node's partition-id, 0 (got 2)" in reply.error.reason


def test_jobs_and_updates_survive_the_way():
    tensors = {"b": torch.arange(6.0).reshape(2, 3).t(), "a": torch.tensor(3), "c": torch.tensor(0.5).double()}
    job = Job(3, 7, tensors, {"k": torch.ones(1)}, {"s": torch.zeros(2)}, 0.5)
    update = Update(3, tensors, 10, 4, {"s": torch.zeros(2)}, {"p": torch.ones(())}, {"train_loss": 0.25})
    found = records.job_from(over_the_wire(records.task_records(Train(job), records.to_arrays(tensors), {}))[0])
    assert (found.client, found.round, found.work) == (3, 7, 0.5)
    answer = records.update_from(over_the_wire(records.update_records(update))[0], 3)
    assert (answer.examples, answer.steps, answer.metrics) == (10, 4, {"train_loss": 0.25})
    for one, other in ((found.weights, tensors), (found.state, job.state), (answer.payload, update.payload)):
        assert list(one) == list(other)
        assert all(torch.equal(one[name], other[name]) and one[name].dtype == other[name].dtype for name in one)


def test_a_test_tells_totals_only():
    content = records.tally_records(Tally((1.5, 0.5), (3, 0, 1), (4, 0, 2)))
    assert dict(content.metric_records[records.METRICS]) == {"loss": 2.0, "correct": 4, "examples": 6}
    assert records.tally_from(content) == Tally((2.0,), (4,), (6,))
    with pytest.raises(records.MalformedError, match="7 correct answers of 6"):
        records.tally_from(RecordDict({records.METRICS: MetricRecord({"loss": 0.0, "correct": 7, "examples": 6})}))


def test_states_on_a_node(tmp_path):
    states = NodeStates(tmp_path / "run" / "client")
    assert states.load(3) is None
    for round_number in (3, 5, 8, 9):
        states.save(round_number, {"x": torch.full((2,), float(round_number))})
    states.forget_before(7)
    assert states.load(3) is None
    for round_number in (5, 8, 9):
        assert torch.equal(states.load(round_number)["x"], torch.full((2,), float(round_number)))


PRIVATE = {
    "engine__kind": "flower",
    "server__weighting": "uniform",
    "privacy__clipping": "server",
    "privacy__clip_norm": 0.01,
    "privacy__noise_multiplier": 0.0,
}


def change_of_one_round(settings):
    run, _ = simulated(settings)
    return subtract(run.weights, build_federation(settings).initial_weights()), run


@pytest.mark.parametrize("clipping", ["server", "client"])
def test_privacy_clips_updates_and_adds_noise_to_their_mean(clipping):
    private = {**PRIVATE, "rounds": 1, "privacy__clipping": clipping}
    change, _ = change_of_one_round(experiment({"name": "fedsol"}, **private))
    assert 0.001 < float(norm(change)) <= 0.0100001
    change, run = change_of_one_round(experiment({"name": "fedsol"}, **{**private, "privacy__noise_multiplier": 30.0}))
    values = torch.cat([tensor.flatten() for tensor in change.values()])
    assert float(values.std()) == pytest.approx(30 * 0.01 / run.rows[0]["clients"], rel=0.2)


@pytest.mark.parametrize("clipping", ["server", "client"])
def test_privacy_bears_nodes_that_change_nothing_or_answer_in_another_order(clipping, tmp_path):
    settings = experiment({"name": "fedavg"}, **{**PRIVATE, "rounds": 1, "privacy__clipping": clipping})
    initial = build_federation(settings).initial_weights()

    def change(grid):
        first, second = list(grid.apps)[:2]

        def changed(node, message, content):
            tensors = records.from_arrays(content.array_records[records.WEIGHTS])
            if node == first:
                tensors = initial
            if node == second:
                tensors = {name: tensors[name] for name in reversed(tensors)}
            return RecordDict({**content, records.WEIGHTS: records.to_arrays(tensors)})

        grid.changed = changed

    run, _ = simulated(settings, change)
    assert run.rows[0]["clients"] == 3
    assert 0 < float(norm(subtract(run.weights, initial))) <= 0.0100001


def test_a_node_that_does_not_clip_is_clipped_by_the_server():
    settings = experiment({"name": "fedavg"}, **{**PRIVATE, "rounds": 1, "privacy__clipping": "client"})

    def change(grid):
        grid.changed = lambda node, message, content: arrays_of(content, lambda tensor: tensor + 1.0)

    run, _ = simulated(settings, change)
    assert float(norm(subtract(run.weights, build_federation(settings).initial_weights()))) <= 0.0100001


def test_privacy_is_bitwise_the_same_in_a_simulation_on_nodes_and_in_this_process():
    changes = {"privacy__noise_multiplier": 1.0, "rounds": 2, "privacy__clip_norm": "adaptive"}
    settings = experiment({"name": "feddyn"}, **changes)
    assert_same_run(simulated(settings)[0], trained(settings))


DEPLOYED = {"privacy__noise_multiplier": 2.0, "rounds": 4, "privacy__clip_norm": 0.05}


def test_noise_and_clients_of_a_deployment_follow_from_no_seed_and_every_attempt_counts(tmp_path):
    settings = experiment({"name": "fedavg"}, **{**DEPLOYED, "server__fraction": 0.5, "server__checkpoint_every": 4})
    one, _ = deployed(settings, tmp_path / "one")
    other, _ = deployed(settings, tmp_path / "other")
    assert float(norm(subtract(one.weights, other.weights))) > 0
    assert [row["noise"] for row in one.rows] == [FROM_SYSTEM] * 4
    assert [row["releases"] for row in one.rows] == [1, 2, 3, 4]

    class Kill(fedsol.Callback):
        def round_finished(self, result):
            if result.round == 3:  # as it is on disk then: three rows, and no checkpoint yet
                shutil.copytree(tmp_path / "third" / "run", tmp_path / "killed" / "run")

    deployed(settings, tmp_path / "third", callbacks=[Kill()])
    again, _ = deployed(settings, tmp_path / "killed", resume=True)
    assert [row["releases"] for row in again.rows] == [4, 5, 6, 7]  # the three rounds were repeated, with new noise
    assert again.rows[0]["epsilon"] == one.rows[3]["epsilon"]


def test_the_account_of_a_deployment_cannot_be_reset_or_exceeded(tmp_path):
    settings = experiment({"name": "fedavg"}, **{**DEPLOYED, "privacy__epsilon": 8.0, "rounds": 9})
    whole, _ = deployed(settings, tmp_path / "whole")
    affordable = len(whole.rows)
    assert affordable < 9
    with pytest.raises(KeyboardInterrupt):
        deployed(settings, tmp_path, callbacks=[StopAfter(2)])
    account = tmp_path / "run" / "privacy.json"
    account.write_text('{"releases": 1}')
    with pytest.raises(RunError, match=r"must count the 2 releases that metrics\.jsonl has .* cannot be reset"):
        deployed(settings, tmp_path, resume=True)
    account.unlink()
    shutil.copytree(tmp_path / "run", tmp_path / "emptied" / "run")
    (tmp_path / "emptied" / "run" / "metrics.jsonl").write_text("")
    shutil.rmtree(tmp_path / "emptied" / "run" / "checkpoints")
    for folder in (tmp_path, tmp_path / "emptied"):
        with pytest.raises(RunError, match=r"privacy\.json: is missing: an account cannot be reset"):
            deployed(settings, folder, resume=True)
    account.write_text(f'{{"releases": {affordable - 1}}}')  # attempts whose rounds were never finished
    run, _ = deployed(settings, tmp_path, resume=True)
    assert len(run.rows) == 3
    assert run.rows[-1]["releases"] == affordable
    account.write_text(f'{{"releases": {affordable}}}')
    run, _ = deployed(settings, tmp_path, resume=True)
    assert len(run.rows) == 3
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "round-000003")  # killed before the checkpoint
    run, _ = deployed(settings, tmp_path, resume=True)
    assert len(run.rows) == 2
    assert run.is_finished
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["stopped"].startswith("after round 2: one more round would exceed privacy.epsilon = 8: rounds that")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    for name in ("experiment.toml", "metrics.jsonl"):
        (tmp_path / "run" / name).unlink()
    with pytest.raises(InputError, match="has parts of a run"):
        deployed(settings, tmp_path)


@pytest.mark.parametrize("level", ["client", "example"])
def test_a_simulation_is_not_resumed_as_a_deployment_nor_the_other_way(level, tmp_path):
    changes = {**DEPLOYED, "rounds": 1, "privacy__level": level, "privacy__clip_norm": 1.0}
    settings = experiment({"name": "fedavg"}, **changes)
    longer = settings.override({"rounds": 2})
    fedsol.train(settings, out=tmp_path / "simulated" / "run")
    with pytest.raises(RunError, match="its rounds have 'simulated noise: protects nobody', and the next would"):
        deployed(longer, tmp_path / "simulated", resume=True)
    deployed(settings, tmp_path / "real")
    with pytest.raises(RunError, match="system's entropy\", and the next would have 'simulated noise: protects"):
        fedsol.train(longer, out=tmp_path / "real" / "run", resume=True)
