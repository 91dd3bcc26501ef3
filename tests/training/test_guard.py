"""The bound of updates (`server.max_change`), the limit of shares (`server.max_share`), and runs that stop in time."""

import json
import math
from dataclasses import replace

import pytest
import torch

import fedsol
from fedsol.config.experiment import Experiment
from fedsol.core.files import sha256
from fedsol.core.messages import Job, ServerState, Update
from fedsol.core.statistics import limited_shares
from fedsol.core.weights import without_prefix
from fedsol.errors import InputError, RunError
from fedsol.federation.evaluation import Tally, summarize_hold_out
from fedsol.federation.faults import Fault
from fedsol.federation.federation import Federation, build_federation
from fedsol.runs.client_states import ClientStates
from fedsol.runs.directory import RunDirectory
from fedsol.training.guard import RECENT_CHANGES, Bound, Limits, check_loss, check_rejections, limits_of, sizes_of
from fedsol.training.updates import Requirements, RoundUpdates
from tests.support.cases import WITH_BATCH_NORM, experiment
from tests.support.runs import Recorder, StopAfter, assert_same_run
from tests.support.tensors import same_tensors


def weights_by(*values):
    """Changes of the weights alone."""
    return [(value, 0.0, 0.0) for value in values]


def test_the_bound_by_hand():
    # Of 1, 2, 3, 100 the lower median is 2: ten times that is 20.
    first, second, third, fourth = Bound(10.0).reasons(weights_by(1.0, 3.0, 100.0, 2.0))
    assert (first, second, fourth) == (None, None, None)
    assert (
        "the weights by 100, which is more than 10 times (server.max_change) the median of recent changes, 2" in third
    )
    # With 30, 40, 50 accepted before, the lower median of seven is 30: 300 is allowed, 301 is not.
    bound = Bound(10.0, tuple(weights_by(30.0, 40.0, 50.0)))
    assert bound.reasons(weights_by(300.0, 1.0, 2.0, 3.0))[0] is None
    assert "301" in bound.reasons(weights_by(301.0, 1.0, 2.0, 3.0))[0]


@pytest.mark.parametrize(("part", "most"), [(0, 10), (1, 10), (2, 100)])
def test_every_part_of_an_update_is_bounded(part, most):
    sizes = [[1.0, 2.0, 3.0] for _ in range(4)]
    sizes[2][part] *= 0.99 * most
    assert Bound(10.0).reasons([tuple(one) for one in sizes]) == [None] * 4
    sizes[2][part] *= 1.02
    assert [reason is not None for reason in Bound(10.0).reasons([tuple(one) for one in sizes])] == [0, 0, 1, 0]


def test_the_bound_of_few_updates():
    assert Bound(10.0).reasons([]) == []
    assert Bound(10.0).reasons(weights_by(1e9)) == [None]  # it is its own median: nothing else is known
    assert [bool(reason) for reason in Bound(10.0).reasons(weights_by(1e9, 1.0))] == [True, False]
    assert Bound(10.0).reasons(weights_by(0.0, 0.0, 5.0)) == [None] * 3  # a median of 0 says nothing
    assert Bound(10.0, tuple(weights_by(1.0))).reasons(weights_by(math.inf))[0] is not None


def test_only_so_many_changes_are_remembered():
    bound = Bound(10.0, tuple((float(number),) for number in range(RECENT_CHANGES)))
    assert bound.after([(7.0,), (8.0,)]) == (*bound.recent[2:], (7.0,), (8.0,))


def test_the_sizes_of_an_update_by_hand():
    server = ServerState({"w": torch.tensor([3.0, 4.0]), "mean": torch.ones(1), "count": torch.tensor(5)}, ("w",), 2)
    update = Update(0, {"w": torch.zeros(2), "mean": torch.tensor([3.0]), "count": torch.tensor(9)}, 1, 1)
    assert sizes_of(update, server, fedsol.algorithms.make_algorithm({"name": "fedavg"})) == (5.0, 2.0, 0.0)


def test_the_payload_counts_by_what_it_does_to_the_server():
    """SCAFFOLD, no control yet: the change of c by one of four clients is `factor (a - w) / 4`."""
    federation = build_federation(experiment({"name": "scaffold"}))
    server = federation.initial_server()
    moved = {name: tensor + 1 for name, tensor in server.weights.items()}
    update = Update(0, moved, 1, 1, payload={"factor": torch.tensor(20.0, dtype=torch.float64)})
    weights, _, state = sizes_of(update, server, federation.algorithm)
    assert weights == pytest.approx(math.sqrt(sum(tensor.numel() for tensor in moved.values())), rel=1e-5)
    assert state == pytest.approx(20 * weights / 4, rel=1e-5)


@pytest.mark.parametrize(
    ("rejected", "answers", "stops"), [(0, 0, 0), (1, 1, 0), (1, 2, 0), (2, 4, 0), (2, 3, 1), (2, 2, 1), (3, 4, 1)]
)
def test_when_rejections_stop_a_run(rejected, answers, stops):
    if not stops:
        check_rejections(5, rejected, answers)
        return
    with pytest.raises(RunError, match=f"round 5: {rejected} of {answers} updates were rejected.*stops after round 4"):
        check_rejections(5, rejected, answers)


def test_when_a_loss_stops_a_run():
    guessing = math.log(10)
    check_loss(1, 9.9 * guessing, [], guessing)
    check_loss(3, 9.9 * guessing, [0.01, None], guessing)  # a setback to worse than guessing is not an explosion
    check_loss(3, 99.0, [10.0], guessing)  # ten times the best so far is 100
    with pytest.raises(RunError, match=r"round 1: the test loss of the global model is 23\.3 \(guessing has 2\.3\)"):
        check_loss(1, 10.1 * guessing, [], guessing)
    with pytest.raises(RunError, match=r"is 101 \(the best so far was 10\)"):
        check_loss(3, 101.0, [10.0, 12.0], 10)
    message = r"an update of rounds 2 to 4 ruined .* stops after round 3, which was not tested and may"
    with pytest.raises(RunError, match=message):
        check_loss(4, 101.0, [10.0, None, None], 10)


def test_limits_are_on_in_deployments_off_in_simulations_and_can_be_set_in_both():
    known = Experiment()
    private = Experiment(data={"name": "private", "private": {"shape": [1, 8, 8], "classes": 10}})
    assert limits_of(private, deployed=True) == Limits(10.0, 0.5)
    assert limits_of(known, deployed=True) == Limits(10.0, 1.0)  # a lie about examples that are known is rejected
    assert limits_of(known, deployed=False) == Limits(0.0, 1.0)
    for deployed in (True, False):
        off = private.override({"server.max_change": 0.0, "server.max_share": 1.0})
        assert limits_of(off, deployed) == Limits(0.0, 1.0)
        chosen = known.override({"server.max_change": 3.0, "server.max_share": 0.2})
        assert limits_of(chosen, deployed) == Limits(3.0, 0.2)


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("max_change", 0.5, r"server\.max_change: must be 0 \(no bound\) or at least 1 \(got 0\.5\)"),
        ("max_change", -1.0, r"server\.max_change: must be greater than or equal to 0 \(got -1\.0\)"),
        ("max_share", 0.0, r"server\.max_share: must be greater than 0 \(got 0\.0\)"),
        ("max_share", 1.5, r"server\.max_share: must be less than or equal to 1 \(got 1\.5\)"),
    ],
)
def test_limits_that_are_refused(key, value, part):
    with pytest.raises(InputError, match=part):
        fedsol.Experiment().override({f"server.{key}": value})


def test_limited_shares_by_hand():
    assert limited_shares([1, 3], 1.0) == [0.25, 0.75]
    assert limited_shares([1, 3], 0.75) == [0.25, 0.75]
    assert limited_shares([1, 3], 0.5) == [0.5, 0.5]
    assert limited_shares([1, 3], 0.1) == [0.5, 0.5]
    assert limited_shares([7], 0.5) == [1.0]
    assert limited_shares([], 0.5) == []
    # 96 of 100 become a half; the other half is split 1 : 3.
    assert limited_shares([1, 96, 3], 0.5) == [0.125, 0.5, 0.375]
    # At 0.4 the second becomes too large by what the first gives up: 0.4, 0.4, and what is left.
    assert limited_shares([90, 9, 1], 0.4) == pytest.approx([0.4, 0.4, 0.2])
    # A limit that does not bind changes no bit.
    sizes = [13, 700, 2481, 650]
    assert limited_shares(sizes, 0.7) == [size / sum(sizes) for size in sizes]


def test_a_lie_about_a_hold_out_set_cannot_outweigh_the_others():
    tallies = [Tally((1.0,), (5,), (10,)), Tally((1.0,), (6,), (10,)), Tally((0.0,), (10**9,), (10**9,))]
    assert summarize_hold_out(tallies).mean == pytest.approx(1.0)
    assert summarize_hold_out(tallies, 0.5).mean == pytest.approx(0.25 * 0.5 + 0.25 * 0.6 + 0.5)


def test_max_share_in_a_run():
    one = experiment({"name": "fedavg"}, data__partition__alpha=0.1)
    free, limited, loose = Recorder(), Recorder(), Recorder()
    run = fedsol.train(one, [free])
    most = max(update.share for result in free.results for update in result.updates)
    fedsol.train(one.override({"server.max_share": 0.4}), [limited])
    assert most > 0.4
    for result in limited.results:
        assert max(update.share for update in result.updates) == pytest.approx(0.4)
        assert sum(update.share for update in result.updates) == pytest.approx(1)
    assert_same_run(fedsol.train(one.override({"server.max_share": most}), [loose]), run)


ATTACKED = {"faults__corrupted": 0.2, "faults__corruption": "flip", "faults__corruption_scale": 1000.0}


def attacked(name="fedsol", **changes):
    clients = {"data__partition__clients": 8, "server__fraction": 1.0}
    return experiment({"name": name}, rounds=4, **{**clients, **ATTACKED, "server__max_change": 10.0, **changes})


@pytest.mark.parametrize("name", ["fedsol", "scaffold", "fednova", "feddyn"])
def test_updates_beyond_the_bound_are_rejected_the_same_on_every_engine_and_after_every_resume(name, tmp_path):
    whole = fedsol.train(attacked(name))
    assert sum(row["corrupted"] for row in whole.rows) > 0
    assert [row["rejected"] for row in whole.rows] == [row["corrupted"] for row in whole.rows]
    assert whole.rows[-1]["test_loss"] < 3  # a loss of guessing after four rounds; without the bound it explodes
    workers = {"engine.kind": "workers", "engine.workers": 2}
    assert_same_run(fedsol.train(attacked(name).override(workers)), whole)
    for stop in (1, 2, 3):
        with pytest.raises(KeyboardInterrupt):
            fedsol.train(attacked(name), [StopAfter(stop)], tmp_path, resume=stop > 1)
    assert_same_run(fedsol.train(attacked(name), out=tmp_path, resume=True), whole)


def test_a_resumed_run_remembers_the_changes_and_an_old_checkpoint_has_none(tmp_path):
    """The changes are part of a checkpoint; one without them is read as well."""
    recorder = Recorder()
    fedsol.train(attacked(faults__corrupted=0.0), [recorder], tmp_path)
    last = recorder.results[-1].after.recent_changes
    assert len(last) == 32
    assert RunDirectory(tmp_path).checkpoints.newest().server.recent_changes == last
    path = max((tmp_path / "checkpoints").glob("round-*")) / "checkpoint.json"
    description = json.loads(path.read_text().rpartition("\n}")[0] + "\n}")
    del description["recent_changes"]
    text = json.dumps(description, indent=1)
    path.write_text(f"{text}\n{sha256(text.encode())}\n")
    assert RunDirectory(tmp_path).checkpoints.newest().server.recent_changes == ()
    more = attacked(faults__corrupted=0.0).override({"rounds": 5})
    assert len(fedsol.train(more, out=tmp_path, resume=True).rows) == 5


def test_the_bound_changes_nothing_where_nobody_is_beyond_it():
    for table in ({"name": "fedsol"}, {"name": "scaffold"}):
        free = fedsol.train(experiment(table, rounds=3))
        assert_same_run(fedsol.train(experiment(table, rounds=3, server__max_change=10.0)), free)


def received(monkeypatch, change):
    """Let `change(job, update)` be what clients send; return the jobs that they were given."""
    original, jobs = Federation.train, {}

    def train(self, job):
        jobs[job.round, job.client] = job
        return change(job, original(self, job))

    monkeypatch.setattr(Federation, "train", train)
    return jobs


def larger(update, part, factor):
    return replace(update, **{part: {name: tensor * factor for name, tensor in getattr(update, part).items()}})


def test_a_client_beyond_the_bound_keeps_its_state(monkeypatch):
    settings = experiment({"name": "scaffold"}, server__fraction=1.0, server__max_change=10.0)
    jobs = received(
        monkeypatch,
        lambda job, update: larger(update, "weights", 1000.0) if (job.round, job.client) == (1, 2) else update,
    )
    run = fedsol.train(settings)
    assert [row["rejected"] for row in run.rows] == [1, 0]
    for client in range(4):
        control = without_prefix("control", jobs[2, client].state)
        assert any(tensor.any() for tensor in control.values()) == (client != 2)


def test_running_statistics_are_bounded(monkeypatch):
    def change(job, update):
        if job.client != 1:
            return update
        weights = {n: t * 1e6 if "running" in n else t for n, t in update.weights.items()}
        return replace(update, weights=weights)

    received(monkeypatch, change)
    settings = experiment({"name": "fedavg"}, server__fraction=1.0, **WITH_BATCH_NORM)
    assert [row["rejected"] for row in fedsol.train(settings).rows] == [0, 0]
    assert [row["rejected"] for row in fedsol.train(settings.override({"server.max_change": 10.0})).rows] == [1, 1]


def test_of_a_late_and_a_new_update_the_newest_accepted_one_leaves_its_state():
    federation = build_federation(experiment({"name": "scaffold"}, server__fraction=1.0))
    server = federation.initial_server()
    update = federation.train(Job(0, 1, server.weights, server.state, federation.initial_state()))
    other = federation.train(Job(1, 1, server.weights, server.state, federation.initial_state()))
    good, bad = update, replace(larger(update, "weights", 1e4), state=larger(update, "state", 3.0).state)
    required = Requirements(update.payload, update.state, Limits(max_change=10.0))
    for late, new, left in ((good, bad, good), (bad, good, good), (bad, bad, None), (good, update, update)):
        states = ClientStates(federation.initial_state)
        updates = RoundUpdates(federation, server, states, 2, {0: Fault(), 1: Fault()}, required)
        updates.server = replace(server, recent_changes=((1.0, 0.0, 1.0),))
        anchor = {name: server.weights[name] for name in server.parameters}
        waiting = {name: tensor - anchor[name] for name, tensor in late.weights.items()}
        updates.add_late(replace(late, weights=waiting))
        for one in (new, other):
            updates._take(one, 0, None)
        updates.finish()
        states.commit(2)
        assert same_tensors(states.get(0), left.state if left else federation.initial_state())
        states.close()


def test_most_updates_beyond_the_bound_stop_the_run_with_what_was_good_saved(monkeypatch, tmp_path):
    hostile = {(3, 0), (3, 1), (3, 2)}
    received(
        monkeypatch,
        lambda job, update: larger(update, "weights", 1e4) if (job.round, job.client) in hostile else update,
    )
    settings = experiment(
        {"name": "scaffold"}, rounds=4, server__fraction=1.0, server__max_change=10.0, server__checkpoint_every=2
    )
    with pytest.raises(RunError, match="round 3: 3 of 4 updates were rejected"):
        fedsol.train(settings, out=tmp_path)
    directory = RunDirectory(tmp_path)
    assert directory.checkpoints.newest().round == len(directory.read_rows()) == 2
    hostile.clear()
    resumed = fedsol.train(settings, out=tmp_path, resume=True)
    assert_same_run(resumed, fedsol.train(settings))


def test_an_exploding_loss_stops_the_run_with_what_was_good_saved(monkeypatch, tmp_path):
    """A change within the bound of one that is beyond any use: every client is hostile."""
    hostile = {2}
    received(monkeypatch, lambda job, update: larger(update, "weights", 1e4) if job.round in hostile else update)
    settings = experiment({"name": "fedavg"}, server__fraction=1.0, server__max_change=1e6)
    with pytest.raises(RunError, match=r"round 2: the test loss of the global model is .*the best so far was"):
        fedsol.train(settings, out=tmp_path)
    directory = RunDirectory(tmp_path)
    assert directory.checkpoints.newest().round == len(directory.read_rows()) == 1
    unguarded = fedsol.train(settings.override({"server.max_change": 0.0}))
    assert unguarded.rows[-1]["test_loss"] > 100  # what happens without
    hostile.clear()
    assert_same_run(fedsol.train(settings, out=tmp_path, resume=True), fedsol.train(settings))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"examples": 10**6}, "has 1000000 examples; the client has"),
        ({"steps": 10**6}, "has 1000000 steps;"),
        ({"metrics": {"train_loss": 5e307}}, "has a training loss of 5e+307, which is not plausible"),
        ({"payload": {"effective-steps": torch.tensor(1e-30, dtype=torch.float64)}}, "has effective-steps 1e-30;"),
        ({"payload": {"effective-steps": torch.tensor(0.0, dtype=torch.float64)}}, "has effective-steps 0;"),
    ],
    ids=str,
)
def test_false_numbers_are_rejected(changes, part, monkeypatch, caplog):
    received(monkeypatch, lambda job, update: replace(update, **changes) if job.client == 1 else update)
    settings = experiment({"name": "fednova"}, server__fraction=1.0, server__max_change=10.0)
    run = fedsol.train(settings)
    assert [row["rejected"] for row in run.rows] == [1, 1]
    assert f"the update of client 1 is rejected: it {part}" in caplog.text


def test_numbers_that_an_own_method_sends_are_its_own_affair():
    settings = experiment({"name": "tests.support.user_code:SendsALength"}, server__max_change=10.0)
    assert [row["rejected"] for row in fedsol.train(settings).rows] == [0, 0]


def test_thousands_of_unknown_names_are_said_in_a_few_words(monkeypatch, caplog):
    extra = {f"name-{number}": torch.zeros(1) for number in range(5000)}
    received(monkeypatch, lambda job, update: replace(update, payload=extra) if job.client == 1 else update)
    fedsol.train(experiment({"name": "fedavg"}, rounds=1, server__fraction=1.0))
    assert "unknown ['name-0', 'name-1', 'name-10'] and 4997 more" in caplog.text
    assert len(caplog.text) < 1000
