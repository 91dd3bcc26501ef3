"""Nodes of a deployment that send what is finite and of the right shape, but hostile."""

import math

import pytest

pytest.importorskip("flwr", reason="Flower is an optional dependency: pip install 'fedsol[flower]'")

import numpy as np
from flwr.app import MetricRecord, RecordDict

import fedsol
from fedsol.engines.flower import records
from fedsol.errors import RunError
from fedsol.runs.directory import RunDirectory
from tests.support.cases import experiment
from tests.support.fake_grid import FakeGrid, clients_of, deployed
from tests.support.runs import Recorder, assert_same_run


def hostile_in(rounds, nodes, change):
    """What a grid does to the updates of some nodes (by number) in some rounds."""

    def changed(node, message, content):
        is_hostile = int(message.content.config_records[records.CONFIG]["round"]) in rounds
        return change(content) if is_hostile and (node - 1000) // 7 in nodes else content

    return changed


def large(content, part=records.WEIGHTS, by=1e4):
    tensors = records.from_arrays(content.array_records[part])
    arrays = {name: tensor + by if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    return RecordDict({**content, part: records.to_arrays(arrays)})


def metrics_of(content, **changes):
    values = {**content.metric_records[records.METRICS], **changes}
    return RecordDict({**content, records.METRICS: MetricRecord(values)})


def settings_for(name="fedavg", **changes):
    return experiment({"name": name}, **{"rounds": 6, "server__fraction": 1.0, **changes})


def attacked(settings, folder, changed, callbacks=(), resume=False):
    grid = FakeGrid(clients_of(settings), folder / "states")
    grid.changed = changed
    return deployed(settings, folder, grid, resume, callbacks)[0]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("fedavg", 1),
        ("scaffold", 3),
        pytest.param("fedsol", 3, marks=pytest.mark.full),
        pytest.param("fednova", 3, marks=pytest.mark.full),
    ],
)
def test_a_model_is_as_good_as_without_a_node_that_sends_one_large_update(name, first, tmp_path, caplog):
    accuracies = {"honest": [], "attacked": []}
    for seed in (0, 1, 2):
        settings = settings_for(name, seed=seed, client__batch_size=10, data__partition__kind="iid")
        accuracies["honest"].append(fedsol.train(settings).final_accuracy)
        run = attacked(settings, tmp_path / str(seed), hostile_in({first}, {1}, large))
        assert [row["rejected"] for row in run.rows] == [int(row["round"] == first) for row in run.rows]
        accuracies["attacked"].append(run.final_accuracy)
    assert "the update of client 1 is rejected: it changes the weights by" in caplog.text
    spread = max(0.05, np.std(accuracies["honest"]))
    assert np.mean(accuracies["attacked"]) > np.mean(accuracies["honest"]) - spread


def test_without_the_bound_that_update_ruins_the_model(tmp_path):
    run = attacked(settings_for(server__max_change=0.0), tmp_path, hostile_in({1}, {1}, large))
    assert run.rows[0]["rejected"] == 0
    assert run.rows[0]["test_loss"] > 1e6


@pytest.mark.parametrize(("name", "table"), [("scaffold", {"usage": "projected"}), ("fednova", {"control": True})])
def test_a_large_payload_is_rejected_too(name, table, tmp_path):
    settings = settings_for(name, rounds=2).override({f"algorithm.{key}": value for key, value in table.items()})
    run = attacked(settings, tmp_path, hostile_in({1, 2}, {1}, lambda content: large(content, "payload")))
    assert [row["rejected"] for row in run.rows] == [1, 1]
    assert run.rows[-1]["test_loss"] < 10


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (1, r"round 1: the test loss of the global model is .* exclude the client and resume"),
        (3, r"round 3: 3 of 4 updates were rejected, .* exclude the clients and resume"),
    ],
)
def test_a_deployment_that_loses_its_model_stops_and_resumes_from_the_last_good_round(first, message, tmp_path):
    """Three of four nodes are hostile. In a first round theirs is the median; the server's own test shows it."""
    settings = settings_for(rounds=first + 1)
    with pytest.raises(RunError, match=message):
        attacked(settings, tmp_path, hostile_in({first}, {0, 1, 2}, lambda content: large(content, by=10.0)))
    directory = RunDirectory(tmp_path / "run")
    newest = directory.checkpoints.newest()
    assert (newest.round if newest else 0) == len(directory.read_rows()) == first - 1
    resumed = attacked(settings, tmp_path, hostile_in((), (), large), resume=True)
    assert_same_run(resumed, fedsol.train(settings))


FALSE_NUMBERS = {
    "loss": {"train_loss": 5e307},
    "restarted often": {"restarted": 1e300},
    "restarted by halves": {"restarted": 0.5},
    "restarted, no number": {"restarted": math.nan},
    "one unknown name": {"accuracy": 0.5},
    "thousands of names": {f"metric-{number}": 1.0 for number in range(5000)},
    "examples": {"examples": 10**9},
    "steps": {"steps": 10**9},
}


@pytest.mark.parametrize("what", FALSE_NUMBERS)
def test_numbers_that_cannot_be_true_are_rejected(what, tmp_path, caplog):
    changed = hostile_in({1}, {1}, lambda content: metrics_of(content, **FALSE_NUMBERS[what]))
    run = attacked(settings_for(rounds=1), tmp_path, changed)
    (row,) = run.rows
    assert (row["rejected"], row["clients"], row["restarted"]) == (1, 3, 0)
    assert row["train_loss"] < 10
    assert len(caplog.text) < 1000


def test_records_that_nobody_asked_for_are_rejected(tmp_path):
    changed = hostile_in({1}, {1}, lambda content: RecordDict({**content, "more": MetricRecord({"x": 1})}))
    assert attacked(settings_for(rounds=1), tmp_path, changed).rows[0]["rejected"] == 1


def test_a_tally_must_be_plausible():
    for loss in (math.nan, math.inf, -1.0):
        with pytest.raises(records.MalformedError, match="has a loss of"):
            records.tally_from(RecordDict({records.METRICS: MetricRecord({"loss": loss, "correct": 1, "examples": 2})}))
    values = {"loss": 1.0, "correct": 1, "examples": 2, "more": 1}
    with pytest.raises(records.MalformedError, match="has 1 metrics that are unknown, such as 'more'"):
        records.tally_from(RecordDict({records.METRICS: MetricRecord(values)}))


def private_deployment(folder, changed, **server):
    """Four nodes with their own data, whose sizes the server cannot know."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    settings = fedsol.Experiment(
        rounds=1,
        data={"name": "private", "private": {"shape": [1, 8, 8], "classes": 3}, "partition": {"clients": 4}},
        model={"name": "mlp", "options": {"hidden": 8}},
        algorithm={"name": "fedavg"},
        client={"epochs": 1},
        server={"fraction": 1.0, **server},
    )
    grid = FakeGrid(4, folder / "states")
    for client, node in enumerate(grid.apps):
        path = folder / f"{client}.npz"
        images = rng.integers(0, 256, (30 + client, 8, 8), dtype=np.uint8)
        np.savez(path, x_train=images, y_train=np.arange(30 + client) % 3)
        grid.configs[node]["data"] = str(path)
    grid.changed = changed
    recorder = Recorder()
    deployed(settings, folder, grid, callbacks=[recorder])
    return [update.share for update in recorder.results[0].updates]


def test_a_lie_about_examples_cannot_outweigh_the_others(tmp_path):
    """A node that claims a hundred million examples of its own data counts for half, and no more."""

    def lie(content):
        return metrics_of(content, examples=10**8, steps=10**8 // 50)

    honest = private_deployment(tmp_path, hostile_in((), (), lie))
    assert honest == [size / 126 for size in (30, 31, 32, 33)]
    shares = private_deployment(tmp_path / "lie", hostile_in({1}, {1}, lie))
    assert shares == pytest.approx([0.5 * 30 / 95, 0.5, 0.5 * 32 / 95, 0.5 * 33 / 95])
    assert max(private_deployment(tmp_path / "off", hostile_in({1}, {1}, lie), max_share=1.0)) > 0.999
