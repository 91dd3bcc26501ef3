"""Averaging while updates arrive: bitwise what holding all of them gives, and few of them at a time."""

import random
import weakref
from dataclasses import dataclass, replace

import pytest
import torch

import fedsol
from fedsol import Algorithm, Callback
from fedsol.algorithms import make_algorithm
from fedsol.core.messages import Job, Update
from fedsol.core.weights import mean, size_in_bytes
from fedsol.engines.base import AHEAD, LocalEngine
from fedsol.engines.workers import WorkersEngine
from fedsol.federation.federation import Federation, build_federation
from fedsol.federation.tasks import Train
from fedsol.training.folding import WINDOW, Folding, held_at_most, reason_to_hold
from fedsol.training.guard import NO_LIMITS, Limits
from tests.support.runs import Recorder, StopAfter, assert_same_run
from tests.support.tensors import same_tensors


class Watch(Callback):
    """Reads no update, so that rounds may drop them."""

    needs_updates = False

    def __init__(self):
        self.held = []

    def round_finished(self, result):
        self.held.append([bool(update.weights) for update in result.updates])


@pytest.fixture
def many(tiny):
    """A round of twenty clients of unequal sizes: more than a window has."""
    changes = {"data.partition.clients": 20, "data.partition.kind": "dirichlet", "server.fraction": 1.0, "rounds": 2}
    return tiny.override(changes)


SETTINGS = {
    "plain": {},
    "two workers": {"engine.kind": "workers", "engine.workers": 2},
    "four workers": {"engine.kind": "workers", "engine.workers": 4},
    "uniform": {"server.weighting": "uniform"},
    "limited shares": {"server.max_share": 0.08},
    "clipped": {"server.max_update_norm": 0.05},
    "adam": {"server.optimizer": "adam"},
    "batch norm": {"model.name": "tests.support.user_code:with_batch_norm"},
    "held out": {"data.partition.held_out": 0.2, "data.validation": 0.2},
    "fedsol": {"algorithm.name": "fedsol"},
    "faults": {
        **{f"faults.{kind}": 0.3 for kind in ("dropout", "stragglers", "late", "corrupted")},
        **{"rounds": 4, "engine.kind": "workers", "engine.workers": 2},
    },
    "few updates": {"server.min_updates": 15, "faults.dropout": 0.3},
}


@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS)
def test_the_result_is_that_of_holding_all(many, changes):
    watch, recorder = Watch(), Recorder()
    settings = many.override(changes)
    assert_same_run(fedsol.train(settings, [watch]), fedsol.train(settings, [recorder]))
    assert not any(held for one_round in watch.held for held in one_round)
    assert all(update.weights for result in recorder.results for update in result.updates)
    assert [len(one_round) for one_round in watch.held] == [result.row["clients"] for result in recorder.results]


def test_a_run_killed_and_resumed(many, tmp_path):
    settings = many.override({"rounds": 4, "faults.late": 0.3})
    stop = StopAfter(2)
    stop.needs_updates = False
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(settings, [stop], out=tmp_path / "run")
    assert_same_run(fedsol.train(settings, out=tmp_path / "run", resume=True), fedsol.train(settings, [Recorder()]))


@dataclass(frozen=True)
class Breaks(Algorithm):
    """From round 2 on, what every third client or so sends is not finite."""

    def upload(self, task, weights, state):
        is_broken = task.lr < 0.01 and len(task.labels()) % 3 == 0
        return {name: tensor * float("nan") for name, tensor in weights.items()} if is_broken else weights


@pytest.mark.parametrize("engine", [{}, {"engine.kind": "workers", "engine.workers": 2}])
def test_a_surprise_repeats_one_round(many, engine, monkeypatch, caplog):
    settings = many.override({"algorithm.name": "tests.training.test_folding:Breaks", "rounds": 4, **engine})
    rounds = []

    def counted(self, tasks, run=None):
        rounds.extend({task.job.round for task in tasks if isinstance(task, Train)})
        yield from run(self, tasks)

    for kind in (LocalEngine, WorkersEngine):
        monkeypatch.setattr(kind, "run", lambda self, tasks, run=kind.run: counted(self, tasks, run))
    recorder, watch = Recorder(), Watch()
    whole = fedsol.train(settings, [recorder])
    assert rounds == [1, 2, 3, 4]
    said = sorted(record.getMessage() for record in caplog.records)
    rounds.clear()
    caplog.clear()
    folded = fedsol.train(settings, [watch])
    assert_same_run(whole, folded)
    assert rounds == [1, 2, 2, 3, 4]  # and from then on, rounds hold what they have
    assert [all(one_round) for one_round in watch.held] == [False, True, True, True]
    assert 0 < whole.rows[1]["rejected"] < 20
    assert sorted(record.getMessage() for record in caplog.records) == said


def test_the_mean_is_that_of_all_in_any_order_of_arrival():
    generator = torch.Generator().manual_seed(0)
    updates = [
        Update(client, {"w": torch.randn(7, 5, generator=generator), "n": torch.tensor(client)}, client + 1, 1)
        for client in range(3 * WINDOW)
    ]
    sizes = {(update.client, 0): update.examples for update in updates}
    expected = mean([one.weights for one in updates], [one.examples / sum(sizes.values()) for one in updates])
    for seed in range(3):
        arriving, most = list(updates), 0
        for start in range(0, len(arriving), WINDOW):
            window = arriving[start : start + WINDOW]
            random.Random(seed).shuffle(window)
            arriving[start : start + WINDOW] = window
        folding = Folding(sizes, 1.0)
        for update in arriving:
            folding.add((update.client, 0), update)
            most = max(most, len(folding.waiting))
        assert same_tensors(folding.mean, expected)
        assert [update.client for update in folding.updates] == list(range(3 * WINDOW))
        assert 0 < most < WINDOW


def test_a_late_update_comes_before_a_new_one_of_its_client():
    folding = Folding({(3, 0): 1, (3, -1): 1, (1, 0): 2}, 1.0)
    assert folding.expects((3, -1))
    assert not folding.expects((1, -1))
    folding.add((3, 0), Update(3, {"w": torch.tensor([4.0])}, 1, 1, payload={"drift": torch.ones(1)}))
    folding.add((3, -1), Update(3, {"w": torch.tensor([8.0])}, 1, 2))
    assert len(folding.waiting) == 2
    folding.add((1, 0), Update(1, {"w": torch.tensor([1.0])}, 2, 1))
    assert folding.mean["w"].tolist() == [0.5 + 2.0 + 1.0]
    assert [(update.client, update.steps, update.share) for update in folding.updates] == [
        (1, 1, 0.5),
        (3, 2, 0.25),
        (3, 1, 0.25),
    ]
    assert [(update.weights, update.payload) for update in folding.updates] == [({}, {})] * 3


@pytest.mark.parametrize(
    ("clients", "workers", "most"),
    [(1000, 1, 48), (1000, 4, 48), (1000, 5, 60), (59, 5, 59)],  # three windows of 16, or of 4 for each worker
)
def test_how_many_updates_are_held_at_most(clients, workers, most):
    assert held_at_most(clients, workers) == most


def test_a_round_in_one_process_holds_one_update(many, monkeypatch):
    """Counted by the tensors that are alive when a client starts: what is dropped waits for no search for garbage."""
    alive, most, train = weakref.WeakSet(), [], Federation.train

    def counted(self, job):
        most.append(len(alive))
        update = train(self, job)
        alive.add(next(iter(update.weights.values())))
        return update

    monkeypatch.setattr(Federation, "train", counted)
    fedsol.train(many, [Watch()])
    assert max(most) <= 2
    most.clear()
    fedsol.train(many, [Recorder()])
    assert max(most) >= 19


def test_workers_write_again_where_an_update_was_that_is_added(tiny, monkeypatch):
    """Without that, three rounds of 64 clients would take memory for 192 updates."""
    clients, held, mapped, add = 4 * WINDOW, [], [], Folding.add
    stop = WorkersEngine.close

    def counted(self, order, update):
        add(self, order, update)
        held.append(len(self.waiting))

    def measured(self):
        mapped.extend(len(memory) for worker in self._workers for memory in worker.channel._received.values())
        stop(self)

    monkeypatch.setattr(Folding, "add", counted)
    monkeypatch.setattr(WorkersEngine, "close", measured)
    changes = {"data.partition.clients": clients, "data.partition.kind": "iid", "server.fraction": 1.0, "rounds": 3}
    run = fedsol.train(tiny.override({**changes, "engine.kind": "workers", "engine.workers": 2}), [Watch()])
    assert max(held) < held_at_most(clients, 2) == (1 + AHEAD) * WINDOW
    needed = max(held) + 2  # of one worker: those that wait, one that is being written, one just read
    assert len(held) == 3 * clients
    assert sum(mapped) < 2 * 2 * needed * 1.1 * size_in_bytes(run.weights)  # two workers; places are doubled


def test_no_job_starts_far_ahead_of_an_unfinished_one(tiny):
    """The first client takes until all that may start without it are done."""
    settings = tiny.override({"data.partition.clients": 30, "data.partition.kind": "iid", "engine.workers": 2})
    federation = build_federation(settings)
    weights = federation.initial_weights()
    order = []
    with WorkersEngine(federation, 2) as engine:
        begin = type(engine._workers[0]).begin
        for worker in engine._workers:
            worker.begin = lambda task, placed, self=worker: (order.append(task.turn), begin(self, task, placed))
        jobs = [Job(client, 1, weights) for client in range(30)]
        for task, _ in engine.run([Train(job, turn=place // 3) for place, job in enumerate(jobs)]):
            assert max(order) <= task.turn + AHEAD + 1
    assert sorted(order) == order


def test_a_worker_has_its_next_job_before_its_answer_is_taken_in(tiny):
    federation = build_federation(tiny.override({"data.partition.clients": 6, "data.partition.kind": "iid"}))
    weights, begun = federation.initial_weights(), []
    with WorkersEngine(federation, 2) as engine:
        begin = type(engine._workers[0]).begin
        for worker in engine._workers:
            worker.begin = lambda task, placed, self=worker: (begun.append(task.client), begin(self, task, placed))
        answers = engine.run([Train(Job(client, 1, weights)) for client in range(6)])
        next(answers)
        assert len(begun) > 2
        assert len(list(answers)) == 5


REASONS = {
    "median": ({"server.aggregation": "median"}, "server.aggregation = 'median' compares them"),
    "scaffold": ({"algorithm.name": "scaffold"}, "the server of scaffold does more than average weights"),
    "privacy": ({"privacy.noise_multiplier": 1.0}, "[privacy] releases their sum"),
    "collusion": (
        {"faults.corruption": "little-is-enough", "faults.attackers": 0.2},
        "faults.corruption = 'little-is-enough' is made of all others",
    ),
    "no collusion": ({"faults.corruption": "nan", "faults.corrupted": 0.2}, None),
    "nobody to collude": ({"faults.corruption": "little-is-enough"}, None),
}


@pytest.mark.parametrize(("changes", "reason"), REASONS.values(), ids=REASONS)
def test_what_must_hold_all_updates(tiny, changes, reason):
    settings = tiny.override(changes)
    assert reason_to_hold(settings, make_algorithm(settings.algorithm), NO_LIMITS) == reason


def test_a_bound_on_changes_compares_updates(tiny):
    algorithm = make_algorithm(tiny.algorithm)
    assert reason_to_hold(tiny, algorithm, Limits(max_change=5.0)) == "server.max_change compares them"
    assert reason_to_hold(tiny, algorithm, replace(NO_LIMITS, max_share=0.4)) is None
