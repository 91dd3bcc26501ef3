"""Analyses during training: one row per round, the same after a stop and a resume, and the run is not changed."""

import json

import pytest

import fedsol
from fedsol.analysis import make_analysis, names_of
from fedsol.analysis.preservation import PreservationAnalysis, accuracy_of
from fedsol.analysis.replay import LocalRound, Replay
from fedsol.analysis.rounds import callbacks_for, rows_path
from fedsol.core.messages import ServerState, Update
from fedsol.errors import InputError
from fedsol.federation.federation import build_federation
from fedsol.federation.sampling import sample_clients
from fedsol.runs.run import Run
from tests.support.runs import StopAfter, assert_same_run
from tests.support.tensors import same_tensors

NAMES = names_of(per_round=True)


def watching(experiment, out, names=NAMES):
    return callbacks_for(names, out, experiment)


def recorded(name, out):
    return make_analysis(name).recorded(out)


@pytest.fixture
def four(tiny):
    return tiny.override({"rounds": 4, "algorithm.name": "fedsol"})


def contents(out):
    return {name: rows_path(out, name).read_text() for name in NAMES}


def test_one_row_per_round_and_the_same_run(four, tmp_path):
    found = fedsol.train(four, watching(four, tmp_path / "a"), tmp_path / "a")
    assert_same_run(found, fedsol.train(four))
    for text in contents(tmp_path / "a").values():
        assert [json.loads(line)["round"] for line in text.splitlines()] == [1, 2, 3, 4]
    divergences = recorded("divergence", tmp_path / "a")
    assert divergences[1].clients == tuple(sample_clients(found.experiment, 8, 2))
    assert divergences[1].global_local > 0
    preserved = recorded("preservation", tmp_path / "a")
    assert [one.before for one in preserved[1:]] == [row["test_accuracy"] for row in found.rows[:-1]]
    assert recorded("strength", tmp_path / "a")[3].layers["head.weight"].mean > 0
    assert recorded("orthogonality", tmp_path / "a")[0].steps > 0


@pytest.mark.parametrize("checkpoint_every", [1, 3])
def test_a_stopped_and_resumed_run_has_the_same_rows(four, tmp_path, checkpoint_every):
    experiment = four.override({"server.checkpoint_every": checkpoint_every})
    fedsol.train(experiment, watching(experiment, tmp_path / "whole"), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(experiment, [*watching(experiment, tmp_path / "cut"), StopAfter(2)], tmp_path / "cut")
    # nothing is asked for: a run goes on with the analyses that it began with
    fedsol.train(experiment, watching(experiment, tmp_path / "cut", ()), tmp_path / "cut", resume=True)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_a_torn_line_and_rows_beyond_the_checkpoint_are_cut_off(four, tmp_path):
    out = tmp_path / "run"
    fedsol.train(four.override({"rounds": 2}), watching(four, out), out)
    path = rows_path(out, "divergence")
    whole = path.read_text()
    path.write_text(whole + '{"round": 3}\n{"rou')
    fedsol.train(four.override({"rounds": 2}), watching(four, out), out, resume=True)
    assert path.read_text() == whole


def test_what_is_not_a_row_is_named(tmp_path):
    path = rows_path(tmp_path, "divergence")
    path.parent.mkdir()
    path.write_text("nonsense\n")
    with pytest.raises(InputError, match=r"divergence\.jsonl: line 1: must be JSON"):
        recorded("divergence", tmp_path)
    path.write_text('{"round": 1}\n')
    with pytest.raises(InputError, match=r"divergence\.jsonl: must be rows of divergence"):
        recorded("divergence", tmp_path)


def test_a_client_that_did_less_is_trained_again_for_as_many_steps(four, tmp_path):
    faults = {"faults.stragglers": 1.0, "faults.straggler_work": 0.5, "rounds": 1, "client.epochs": 4}
    experiment = four.override(faults)
    steps = []

    class Steps(fedsol.Callback):
        def round_finished(self, result):
            steps.append(result.updates[0].steps)

    fedsol.train(experiment, [*watching(experiment, tmp_path), Steps()], tmp_path)
    assert [one.steps for one in recorded("orthogonality", tmp_path)] == steps


def test_rows_are_json_also_where_a_layer_begins_at_zero(tiny, tmp_path):
    experiment = tiny.override({"rounds": 1, "model.name": "tests.support.user_code:with_batch_norm"})
    fedsol.train(experiment, watching(experiment, tmp_path), tmp_path)
    text = rows_path(tmp_path, "strength").read_text()
    assert "NaN" not in text
    layers = recorded("strength", tmp_path)[0].layers.values()
    assert any(layer.movement is None for layer in layers)
    assert any(layer.movement for layer in layers)


@pytest.mark.parametrize(
    ("algorithm", "strength"),
    [
        ({"name": "fedsol"}, "adaptive-column"),
        ({"name": "fedsol", "strength": "adaptive"}, "adaptive"),
        ({"name": "fedprox", "strength": "adaptive"}, "adaptive-column"),
    ],
)
def test_rows_show_the_lambda_of_the_run(tiny, tmp_path, algorithm, strength):
    changes = {f"algorithm.{key}": value for key, value in algorithm.items()}
    experiment = tiny.override({"rounds": 1, **changes})
    fedsol.train(experiment, watching(experiment, tmp_path, ["strength"]), tmp_path)
    assert [row.strength for row in recorded("strength", tmp_path)] == [strength]


def test_only_classes_that_a_client_trains_on_are_its_own(tiny):
    federation = build_federation(tiny.override({"data.partition.held_out": 0.5}))
    weights = federation.initial_weights()
    for client in range(8):
        update = Update(client, weights, 1, 1)
        done = LocalRound(1, ServerState(weights, (), 8), [update])
        found = PreservationAnalysis().measure_round(federation, done)
        labels = federation.dataset.train.labels[federation.training_samples(client)].unique()
        tally = federation.evaluate(weights)
        own = [label in labels for label in range(10)]
        assert found.held_after == (accuracy_of(tally, own),)


def test_unknown_and_impossible_analyses_are_refused(four, tmp_path):
    with pytest.raises(InputError, match="--analyze: unknown value 'divergense'; did you mean 'divergence'"):
        watching(four, tmp_path, ["divergense"])
    with pytest.raises(InputError, match="orthogonality is not allowed for scaffold"):
        watching(four.override({"algorithm.name": "scaffold"}), tmp_path)


def test_a_round_done_again_is_the_round_that_training_does(tiny, tmp_path):
    """The run is cut off after two rounds; its third, analyzed, has the weights that training aggregates."""
    experiment = tiny.override({"rounds": 3, "algorithm.name": "scaffold", "server.fraction": 0.125})
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(experiment, [StopAfter(2)], tmp_path / "run")
    before = sorted(path.name for path in (tmp_path / "run").rglob("*"))
    replay = Replay(Run.load(tmp_path / "run"))
    assert replay.checkpoint.round == 2
    done = replay.local_round()
    assert done.round == 3
    assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == before
    whole = fedsol.train(experiment, out=tmp_path / "run", resume=True)
    assert same_tensors(done.updates[0].weights, whole.weights)  # one client: its weights are the average


def test_clients_are_checked(tiny, tmp_path):
    fedsol.train(tiny, out=tmp_path / "run")
    replay = Replay(Run.load(tmp_path / "run"))
    assert replay.clients([3, 1, 3]) == [1, 3]
    with pytest.raises(InputError, match=r"--clients: must be 0 to 7 \(got 8\)"):
        replay.clients([8])


def test_a_finished_cosine_schedule_repeats_its_last_round(tiny, tmp_path):
    """The round after it would have a learning rate of 0, and nothing would move."""
    fedsol.train(tiny.override({"server.lr_schedule": "cosine"}), out=tmp_path / "run")
    assert Replay(Run.load(tmp_path / "run")).next_round == 2


def test_a_run_without_a_round_cannot_be_analyzed(tiny, tmp_path):
    class StopAtOnce(fedsol.Callback):
        def round_started(self, round_number, clients):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedsol.train(tiny, [StopAtOnce()], tmp_path / "run")
    with pytest.raises(InputError, match="has no checkpoint to analyze"):
        Replay(Run.load(tmp_path / "run")).local_round()


def test_a_round_without_updates_has_no_row(four, tmp_path):
    lonely = four.override({"faults.dropout": 1.0})
    fedsol.train(lonely, watching(lonely, tmp_path), tmp_path)
    assert set(contents(tmp_path).values()) == {""}
