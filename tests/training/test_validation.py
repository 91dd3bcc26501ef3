"""Runs with a validation set: the best checkpoint, the stop, and bitwise the same on every engine and after kills."""

import json
import re
from functools import partial

import numpy as np
import pytest

import fedsol
from fedsol import Experiment, InputError, Run
from fedsol.engines.base import LocalEngine
from fedsol.federation.federation import build_federation
from fedsol.runs.selection import Selection
from tests.support.cases import experiment
from tests.support.fake_grid import FakeGrid, deployed, simulated
from tests.support.private import settings as private_settings
from tests.support.runs import (
    Recorder,
    StopAfter,
    assert_same_run,
    killed_at_flush,
    rows_without_seconds,
    trained,
)
from tests.support.tensors import same_tensors

VALIDATED = {"data__validation": 0.25, "client__lr": 0.3, "rounds": 6}
"""A learning rate so high that the accuracy goes up and down."""


def validated(by="client", **changes):
    return experiment({"name": "fedavg"}, **{**VALIDATED, "data__validation_by": by, **changes})


def values(run):
    return [row["validation_accuracy"] for row in run.rows]


both = pytest.mark.parametrize("by", ["client", "central"])


@both
def test_the_columns_are_those_of_the_global_model_on_the_validation_set(by):
    run = trained(validated(by))
    federation = build_federation(validated(by))
    if by == "central":
        tallies = [federation.evaluate_validation(run.weights)]
    else:
        tallies = [
            federation.evaluate_client(run.weights, client, "validation") for client in range(federation.clients)
        ]
    correct, examples = (sum(sum(getattr(tally, part)) for tally in tallies) for part in ("correct", "examples"))
    assert run.rows[-1]["validation_accuracy"] == correct / examples
    assert run.rows[-1]["validation_loss"] == pytest.approx(sum(sum(t.losses) for t in tallies) / examples, rel=1e-12)
    assert run.rows[-1].get("validation_clients") == (4 if by == "client" else None)


def test_no_round_looks_at_the_rows_of_all_earlier_ones(tmp_path, monkeypatch):
    judged, counts, results = [], [], Selection.results
    monkeypatch.setattr(Selection, "results", lambda self, rows: judged.extend(rows) or results(self, rows))

    class Count(fedsol.Callback):
        def round_finished(self, result):
            counts.append(len(judged))

    fedsol.train(validated(server__patience=6), [Count()], tmp_path)
    assert counts == [1, 2, 3, 4, 5, 6]


@both
def test_the_best_round_is_the_best_by_validation(by):
    results = Recorder()
    run = fedsol.train(validated(by), [results])
    best = max(range(6), key=lambda index: values(run)[index])
    assert run.best_round == best + 1
    assert run.best_validation == values(run)[best]
    assert run.best_accuracy == run.rows[best]["test_accuracy"]
    assert same_tensors(run.weights_of("best"), results.results[best].after.weights)
    assert same_tensors(run.weights_of("final"), results.results[-1].after.weights)


def test_validation_changes_what_is_trained_on_and_nothing_else():
    plain = experiment({"name": "fedavg"}, client__lr=0.3, rounds=1)
    found = trained(plain)
    assert not [key for key in found.rows[0] if key.startswith("validation")]
    assert found.summary().keys() == {"algorithm", "seed", "rounds", "final_accuracy", "best_accuracy"}
    assert trained(validated(rounds=1)).rows[0]["client_ids"] == found.rows[0]["client_ids"]
    assert trained(validated(rounds=1)).rows[0]["examples"] < found.rows[0]["examples"]


@both
def test_every_engine_gives_bitwise_the_same(by):
    local = trained(validated(by, server__patience=2))
    workers = fedsol.train(validated(by, server__patience=2, engine__kind="workers", engine__workers=2))
    nodes, _ = simulated(validated(by, server__patience=2))
    for other in (workers, nodes):
        assert_same_run(other, local)
        assert same_tensors(other.best_weights, local.best_weights)


def test_only_evaluated_rounds_have_values_and_some_clients_may_test():
    run = trained(validated(server__evaluate_every=2, server__evaluate_clients=2, rounds=5))
    assert [value is not None for value in values(run)] == [False, True, False, True, True]
    assert [row["validation_clients"] for row in run.rows] == [0, 2, 0, 2, 2]


def test_clients_receive_the_weights_once_for_each_set_that_they_test():
    plain, one, both_sets = (
        trained(experiment({"name": "fedavg"}, rounds=1, data__validation=share, data__partition__held_out=held_out))
        for share, held_out in ((0.0, 0.0), (0.2, 0.0), (0.2, 0.2))
    )
    first, second, third = (run.rows[0]["bytes_down"] for run in (plain, one, both_sets))
    assert second - first == third - second == 4 * (first // 3)


@pytest.fixture
def stopping(tmp_path):
    """A run that stops after its patience."""
    run = fedsol.train(validated(rounds=30, server__patience=2), out=tmp_path / "run")
    assert run.stopped
    return run


def test_patience_stops_a_run_and_says_why(stopping):
    assert len(stopping.rows) == stopping.best_round + 2 < 30
    assert stopping.is_finished
    reason = (
        f"no better validation accuracy than in round {stopping.best_round} for 2 evaluated rounds (server.patience)"
    )
    summary = json.loads((stopping.path / "summary.json").read_text())
    assert summary["stopped"] == f"after round {len(stopping.rows)}: {reason}"
    assert summary["best_round"] == stopping.best_round
    assert summary["best_validation"] == stopping.best_validation
    loaded = Run.load(stopping.path)
    assert loaded.stopped == stopping.stopped
    assert same_tensors(loaded.weights_of("best"), stopping.weights_of("best"))
    assert not same_tensors(loaded.weights_of("best"), loaded.weights_of("final"))


def test_a_stopped_run_is_not_trained_on(stopping):
    before = {
        path: path.read_bytes() for path in stopping.path.rglob("*") if path.is_file() and path.name != "run.lock"
    }
    callback = Recorder()
    again = fedsol.train(validated(rounds=30, server__patience=2), [callback], stopping.path, resume=True)
    assert callback.events == ["started", "finished"]
    assert_same_run(again, stopping)
    assert same_tensors(again.best_weights, stopping.best_weights)
    assert before == {path: path.read_bytes() for path in before}


def test_more_rounds_do_not_wake_a_stopped_run(stopping):
    again = fedsol.train(validated(rounds=40, server__patience=2), out=stopping.path, resume=True)
    assert_same_run(again, stopping)
    assert Run.load(stopping.path).experiment.rounds == 40


def test_more_patience_goes_on_as_if_there_had_always_been_so_much(stopping):
    longer = validated(rounds=30, server__patience=4)
    assert_same_run(fedsol.train(longer, out=stopping.path, resume=True), trained(longer))
    assert len(trained(longer).rows) > len(stopping.rows)
    (note,) = json.loads((stopping.path / "environment.json").read_text())["lengthened"]
    assert note["server.patience"] == 4
    assert Run.load(stopping.path).experiment.server.patience == 4


def test_a_rule_that_would_have_stopped_the_run_before_is_refused(stopping):
    for changes in ({"server__patience": 1}, {"server__patience": 2, "server__stop_at": 0.0}):
        found = re.escape(str(stopping.path)) + (
            r": server\.patience, server\.stop_at: with these values the run would have stopped after round \d+, "
            rf"but {len(stopping.rows)} rounds are done"
        )
        with pytest.raises(InputError, match=found):
            fedsol.train(validated(rounds=30, **changes), out=stopping.path, resume=True)
    assert Run.load(stopping.path).experiment.server.patience == 2


@both
def test_a_target_on_the_validation_set_stops_a_run(by):
    whole = trained(validated(by))
    target = sorted(values(whole))[-1]
    run = trained(validated(by, server__stop_at=target))
    assert len(run.rows) == whole.best_round
    assert run.stopped.reason == f"validation accuracy {100 * target:.2f} % has reached server.stop_at = {target:g}"
    assert rows_without_seconds(run) == rows_without_seconds(whole)[: whole.best_round]


def test_without_validation_a_target_is_one_on_the_test_set():
    whole = trained(experiment({"name": "fedavg"}, rounds=6, client__lr=0.3))
    target = whole.best_accuracy
    run = fedsol.train(experiment({"name": "fedavg"}, rounds=6, client__lr=0.3, server__stop_at=target))
    assert len(run.rows) == whole.best_round
    assert run.stopped.reason.startswith("test accuracy")


def test_a_target_that_nothing_measures_is_refused():
    with pytest.raises(InputError) as error:
        fedsol.train(private_settings(server__stop_at=0.9), engine=LocalEngine)
    assert str(error.value) == (
        "server.stop_at: 0.9 is not allowed without a validation set or a test set; set data.validation to a share of "
        "the training samples, such as 0.1"
    )


def test_without_validation_there_is_no_best_model():
    run = trained(experiment({"name": "fedavg"}))
    with pytest.raises(InputError, match="which: 'best' is not allowed: the run has no validation set to choose it on"):
        run.weights_of("best")
    with pytest.raises(InputError, match=r"which: unknown value 'last'; did you mean 'best'\? Allowed: best, final"):
        run.weights_of("last")


@pytest.mark.parametrize("checkpoint_every", [1, 2, 5])
@pytest.mark.parametrize("interrupted", [1, 3, 4])
def test_an_interrupted_run_ends_with_the_same_best_and_the_same_stop(tmp_path, checkpoint_every, interrupted):
    settings = validated(rounds=30, server__patience=2, server__checkpoint_every=checkpoint_every)
    whole = trained(validated(rounds=30, server__patience=2))
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(settings, [StopAfter(interrupted)], tmp_path)
    run = fedsol.train(settings, out=tmp_path, resume=True)
    assert_same_run(run, whole)
    for found in (run, Run.load(tmp_path)):
        assert same_tensors(found.weights_of("best"), whole.weights_of("best"))
        assert found.stopped == whole.stopped


def test_a_kill_at_every_write_leaves_the_best_of_the_rounds_so_far(tmp_path):
    settings = validated(rounds=9, server__patience=1, server__checkpoint_every=2)
    whole = trained(validated(rounds=9, server__patience=1))
    assert whole.stopped
    number = 0
    while killed_at_flush(partial(fedsol.train, settings, out=tmp_path / str(number := number + 1)), number):
        out = tmp_path / str(number)
        exists = (out / "experiment.toml").exists()
        if exists and Run.load(out).weights:
            assert Run.load(out).weights_of("best")  # of the rounds that the newest checkpoint covers
        assert_same_run(fedsol.train(settings, out=out, resume=exists), whole)
        assert same_tensors(Run.load(out).weights_of("best"), whole.weights_of("best"))
    assert number > 20


def test_cleaning_never_removes_the_best(tmp_path):
    settings = validated(rounds=30, server__patience=8)
    run = fedsol.train(settings, out=tmp_path)
    names = {path.name for path in (tmp_path / "checkpoints").glob("round-*")}
    assert f"round-{run.best_round:06d}" not in names
    assert [path.name for path in (tmp_path / "checkpoints" / "best").iterdir()] == [f"round-{run.best_round:06d}"]
    assert same_tensors(Run.load(tmp_path).weights_of("best"), run.best_weights)


def test_a_lost_best_is_a_warning_and_the_run_goes_on(tmp_path, caplog):
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(validated(), [StopAfter(3)], tmp_path)
    best = Run.load(tmp_path).best_round
    (tmp_path / "checkpoints" / "best" / f"round-{best:06d}" / "server.safetensors").write_bytes(b"damaged")
    assert_same_run(fedsol.train(validated(), out=tmp_path, resume=True), trained(validated()))
    assert f"the model of round {best}, the best so far, is lost" in caplog.text


def test_a_run_that_trains_alone_has_no_rounds_to_choose_from():
    run = fedsol.train(experiment({"name": "local-only"}, rounds=1, data__validation=0.2))
    assert run.best_round == 1


def test_the_defaults_say_nothing_of_validation():
    assert Experiment().data.validation == 0
    assert Experiment().server.patience is Experiment().server.stop_at is None


PRIVATE = {
    "rounds": 6,
    "data.name": "private",
    "data.private.shape": [1, 8, 8],
    "data.private.classes": 3,
    "data.partition.clients": 2,
    "data.partition.held_out": 0.25,
    "data.validation": 0.2,
    "server.patience": 2,
    "model.name": "mlp",
    "algorithm.name": "scaffold",
}


def hospitals(folder):
    """Two nodes with data of their own."""
    grid = FakeGrid(2, folder / "states")
    for client, node in enumerate(grid.apps):
        path = folder / f"{client}.npz"
        images = np.random.default_rng(client).integers(0, 255, (40, 8, 8)).astype(np.uint8)
        np.savez(path, x_train=images, y_train=np.arange(40) % 3)
        grid.configs[node]["data"] = str(path)
    return grid


def test_nodes_validate_with_their_own_data_and_the_server_stops(tmp_path):
    """The server has neither samples nor a test set."""
    settings = Experiment().override(PRIVATE)
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole, _ = deployed(settings, tmp_path / "whole", hospitals(tmp_path / "whole"))
    assert whole.stopped
    assert len(whole.rows) == whole.best_round + 2
    counts = [(row["examples"], row["held_out_clients"], row["validation_clients"]) for row in whole.rows]
    assert counts == [(48, 2, 2)] * len(whole.rows)  # each has 40: 10 held out, 6 for validation, 24 to train on
    grid = hospitals(tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        deployed(settings, tmp_path / "parts", grid, callbacks=[StopAfter(2)])
    parts, _ = deployed(settings, tmp_path / "parts", grid, resume=True)
    assert_same_run(parts, whole)
    assert same_tensors(parts.weights_of("best"), whole.weights_of("best"))
    assert same_tensors(Run.load(tmp_path / "parts" / "run").weights_of("best"), whole.weights_of("best"))


def test_a_node_that_is_away_leaves_the_others_to_validate(tmp_path):
    grid = hospitals(tmp_path)
    settings = Experiment().override({**PRIVATE, "rounds": 1, "engine.patience": 0.0})
    grid.offline.add(next(iter(grid.apps)))
    run, _ = deployed(settings, tmp_path, grid)
    assert run.rows[0]["validation_clients"] == 1
    assert run.best_round == 1


def test_a_node_refuses_a_part_that_it_does_not_have(tmp_path):
    from flwr.app import Message

    from fedsol.engines.flower import records
    from fedsol.federation.tasks import EvaluateClient

    settings, grid = validated(), FakeGrid(4)
    weights = build_federation(settings).initial_weights()
    task = EvaluateClient(weights, 0, "training")  # type: ignore[arg-type]
    content = records.task_records(task, records.to_arrays(weights), {"experiment": settings.to_toml()})
    grid.push_messages([Message(content, next(iter(grid.apps)), "evaluate")])
    ((_, reply),) = grid._replies.items()
    assert reply.error.reason == "message: 'part' must be one of ('held_out', 'validation') (got 'training')"


@pytest.mark.parametrize("by", ["client", "central"])
def test_other_metrics_choose_too(by):
    """Of clients only the primary metric is known; of the server's set every one."""
    run = trained(validated(by, rounds=3, task__metrics=["brier", "accuracy"], server__stop_at=0.0))
    found = [row["validation_brier"] for row in run.rows]
    assert run.best_round == 1 + found.index(min(found))
    assert run.best_validation == min(found)
    assert ("validation_accuracy" in run.rows[0]) == (by == "central")
    reached = trained(validated(by, rounds=3, task__metrics=["brier", "accuracy"], server__stop_at=min(found)))
    assert len(reached.rows) == run.best_round
    assert reached.stopped.reason.startswith("validation Brier score")
    assert_same_run(simulated(reached.experiment)[0], reached)


@pytest.fixture
def numbers(tmp_path):
    """A regression on four clients of seven samples, each with one for validation."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(40, 4)).astype(np.float32)
    targets = inputs.sum(axis=1, keepdims=True)
    np.savez(tmp_path / "r.npz", x_train=inputs[:28], y_train=targets[:28], x_test=inputs[28:], y_test=targets[28:])
    changes = {"data.name": str(tmp_path / "r.npz"), "data.partition.kind": "iid", "task.kind": "regression"}
    return validated(client__lr=0.01, rounds=3, data__validation=0.1).override(changes)


def test_a_regression_is_validated_by_its_error(numbers):
    run = trained(numbers)
    errors = [row["validation_rmse"] for row in run.rows]
    assert run.best_round == 1 + errors.index(min(errors))
    assert run.summary()["best_validation"] == min(errors)
    assert_same_run(simulated(numbers)[0], run)
    assert_same_run(fedsol.train(numbers.override({"engine.kind": "workers", "engine.workers": 2})), run)


def test_a_metric_that_one_sample_does_not_define_chooses_nothing(numbers):
    """R² takes two samples at least."""
    run = trained(numbers.override({"task.metrics": ["r2"], "server.patience": 1}))
    assert [row["validation_r2"] for row in run.rows] == [None] * 3
    assert run.best_round is run.best_validation is run.stopped is None
    with pytest.raises(InputError, match="which: 'best' is not allowed: no round has a result on the validation set"):
        run.weights_of("best")
    assert_same_run(simulated(run.experiment)[0], run)


def test_the_best_model_is_taken_away_with_the_facts_of_its_round(tmp_path):
    run = fedsol.train(validated(rounds=30, server__patience=2), out=tmp_path)
    assert run.best_accuracy != run.final_accuracy
    for found in (run, Run.load(tmp_path)):
        assert found.evaluate(which="best")["accuracy"] == run.best_accuracy
        assert found.evaluate()["accuracy"] == run.final_accuracy
        facts = found.trained("best").facts
        assert facts["rounds"] == run.best_round
        assert facts["metrics"]["validation_accuracy"] == run.best_validation
    weights = run.model("best").state_dict()
    assert all(
        same_tensors({"a": one}, {"a": other})
        for one, other in zip(weights.values(), run.best_weights.values(), strict=True)
    )
