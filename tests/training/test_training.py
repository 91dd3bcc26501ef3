"""The round loop: determinism, resuming, weighting, rejection, and what callbacks see."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fedsol
from fedsol import Callback, Experiment, InputError, RunError
from fedsol.algorithms.base import Algorithm
from fedsol.federation.sampling import sample_clients
from fedsol.runs import directory as runs
from fedsol.runs.directory import RunDirectory
from fedsol.runs.rows import rows_to_text
from tests.support.runs import Recorder, StopAfter, assert_same_run, trained
from tests.support.tensors import same_tensors
from tests.support.user_code import uneven_clients


@pytest.mark.parametrize("algorithm", ["fedavg", "fedsol"])
def test_the_same_experiment_is_bitwise_the_same_run(tiny, algorithm):
    experiment = tiny.override({"algorithm.name": algorithm})
    torch.manual_seed(1)
    first = fedsol.train(experiment)
    torch.manual_seed(2)  # nothing may depend on torch's global generator
    second = fedsol.train(experiment)
    assert_same_run(first, second)


def test_another_seed_is_another_run(tiny):
    assert not same_tensors(trained(tiny).weights, fedsol.train(tiny.override({"seed": 1})).weights)


@pytest.mark.parametrize("proximal", ["kl", "l2"])
@pytest.mark.parametrize("perturb", ["all", "body", "head"])
@pytest.mark.parametrize("strength", ["fixed", "adaptive", "adaptive-column"])
def test_fedsol_with_rho_zero_is_bitwise_fedavg(tiny, proximal, perturb, strength):
    fedavg = trained(tiny)
    table = {"name": "fedsol", "rho": 0.0, "proximal": proximal, "perturb": perturb, "strength": strength}
    found = fedsol.train(tiny.model_copy(update={"algorithm": table}))
    assert_same_run(found, fedavg)


def test_fedsol_with_rho_is_not_fedavg(tiny):
    found = fedsol.train(tiny.override({"algorithm.name": "fedsol"}))
    assert not same_tensors(found.weights, trained(tiny).weights)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in found.weights.values())


@pytest.mark.parametrize("checkpoint_every", [1, 2, 10])
def test_an_interrupted_run_goes_on_to_bitwise_the_same_end(tiny, tmp_path, checkpoint_every):
    experiment = tiny.override({"rounds": 5, "algorithm.name": "fedsol", "server.checkpoint_every": checkpoint_every})
    whole = fedsol.train(experiment, out=tmp_path / "whole")
    for stop in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            fedsol.train(experiment, [StopAfter(stop)], tmp_path / "parts", resume=stop > 1)
    assert_same_run(fedsol.train(experiment, out=tmp_path / "parts", resume=True), whole)
    one, other = (tmp_path / name / "metrics.jsonl" for name in ("whole", "parts"))
    assert [json.loads(line)["round"] for line in other.read_text().splitlines()] == [1, 2, 3, 4, 5]
    assert len(one.read_text().splitlines()) == 5
    assert_same_run(fedsol.Run.load(tmp_path / "parts"), whole)


def test_a_finished_run_resumed_stays_as_it_is(tiny, tmp_path):
    whole = fedsol.train(tiny, out=tmp_path)
    assert_same_run(fedsol.train(tiny, out=tmp_path, resume=True), whole)


def test_a_directory_that_holds_a_run_is_not_overwritten(tiny, tmp_path):
    fedsol.train(tiny, out=tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(InputError, match="already has a run"):
        fedsol.train(tiny, out=tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_another_experiment_cannot_go_on_with_a_run(tiny, tmp_path):
    fedsol.train(tiny, out=tmp_path)
    with pytest.raises(InputError, match=r"different values of client\.lr, seed"):
        fedsol.train(tiny.override({"seed": 4, "client.lr": 0.5}), out=tmp_path, resume=True)


def test_more_rounds_go_on_as_if_there_had_always_been_so_many(tiny, tmp_path):
    fedsol.train(tiny, out=tmp_path)
    longer = tiny.override({"rounds": tiny.rounds + 2})
    whole = trained(longer)
    assert_same_run(fedsol.train(longer, out=tmp_path, resume=True), whole)
    assert Experiment.load(tmp_path / "experiment.toml") == whole.experiment
    fedsol.train(longer, out=tmp_path, resume=True)
    (note,) = json.loads((tmp_path / "environment.json").read_text())["lengthened"]
    assert (note["from"], note["to"]) == (tiny.rounds, longer.rounds)
    assert note.keys() >= {"command", "started"}


def test_a_run_that_goes_on_with_other_software_says_so(tiny, tmp_path, monkeypatch, caplog):
    before = fedsol.train(tiny, out=tmp_path)
    fedsol.train(tiny.override({"rounds": 3}), out=tmp_path, resume=True)
    assert "went_on" not in json.loads((tmp_path / "environment.json").read_text())  # the same software
    assert not caplog.records
    mine = runs.environment()
    other = {**mine, "packages": {**mine["packages"], "torch": "99.0"}, "commit": "f" * 40, "commit_modified": False}
    monkeypatch.setattr(runs, "environment", lambda: other)
    fedsol.train(tiny.override({"rounds": 3}), out=tmp_path, resume=True)
    assert not caplog.records  # nothing was left to do
    for rounds in (4, 5):  # the second time the software is that of the rounds before
        fedsol.train(tiny.override({"rounds": rounds}), out=tmp_path, resume=True)
    (record,) = caplog.records
    assert "rounds 1 to 3 ran with torch" in record.getMessage()
    assert "(now 99.0)" in record.getMessage()
    (note,) = json.loads((tmp_path / "environment.json").read_text())["went_on"]
    assert (note["after"], note["commit"], note["packages"]["torch"]) == (3, "f" * 40, "99.0")
    assert len(before.rows) == 2


REFUSED = {
    "fewer": ({}, {"rounds": 1}, r"rounds: must be at least 2 \(got 1\)"),
    "another seed": ({}, {"rounds": 9, "seed": 4}, "different values of rounds, seed"),
    "cosine": ({"server.lr_schedule": "cosine"}, {"rounds": 9}, "every learning rate depends on the number of rounds"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_rounds_that_would_change_those_done_are_refused(tiny, tmp_path, case):
    begun, changes, message = REFUSED[case]
    fedsol.train(tiny.override(begun), out=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=message):
        fedsol.train(tiny.override({**begun, **changes}), out=tmp_path, resume=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_resume_needs_a_directory(tiny):
    with pytest.raises(InputError, match="resume: requires the directory"):
        fedsol.train(tiny, resume=True)


def test_the_run_directory_has_the_files_of_the_contract(tiny, tmp_path):
    run = fedsol.train(tiny, out=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= {
        "experiment.toml", "metrics.jsonl", "summary.json", "environment.json", "checkpoints", "partition.json",
        "data.json",
    }  # fmt: skip
    assert Experiment.load(tmp_path / "experiment.toml") == run.experiment
    row = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    assert row.keys() >= {
        "round", "test_accuracy", "test_loss", "train_loss", "clients", "examples", "seconds", "bytes_up",
        "bytes_down", "rejected",
    }  # fmt: skip
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary.keys() >= {"algorithm", "seed", "rounds", "final_accuracy", "best_accuracy"}
    assert summary["final_accuracy"] == run.final_accuracy
    assert "sha256" in json.loads((tmp_path / "partition.json").read_text())
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".pt", ".pkl", ".pth")]


def test_bytes_are_those_of_the_weights(tiny):
    run = fedsol.train(tiny)
    size = sum(tensor.numel() * tensor.element_size() for tensor in run.weights.values())
    assert [(row["bytes_up"], row["bytes_down"]) for row in run.rows] == [(4 * size, 4 * size)] * 2


def test_evaluation_happens_when_it_is_due_and_at_the_end(tiny):
    run = fedsol.train(tiny.override({"rounds": 5, "server.evaluate_every": 3}))
    assert [row["round"] for row in run.rows if row["test_accuracy"] is not None] == [3, 5]
    run = fedsol.train(tiny.override({"rounds": 6, "server.evaluate_every": 2, "server.evaluate_last": 3}))
    assert [row["round"] for row in run.rows if row["test_accuracy"] is not None] == [2, 4, 5, 6]


def test_accuracy_is_the_mean_of_the_classes_weighted_by_their_examples(tiny):
    row = fedsol.train(tiny).rows[-1]
    assert 0 <= row["test_accuracy"] <= 1
    assert min(row["class_accuracy"]) <= row["test_accuracy"] <= max(row["class_accuracy"])


def test_callbacks_are_told_everything_in_order(tiny):
    recorder = Recorder()
    fedsol.train(tiny, [recorder])
    a_round = ["client"] * 4 + ["done"]
    assert recorder.events == ["started", "round 1", *a_round, "round 2", *a_round, "finished"]
    assert [update.client for update in recorder.results[0].updates] == recorder.results[0].row["client_ids"]


@pytest.mark.parametrize("weighting", ["size", "uniform"])
def test_shares_follow_the_weighting(tiny, weighting):
    recorder = Recorder()
    fedsol.train(tiny.override({"server.weighting": weighting}), [recorder])
    updates = recorder.results[0].updates
    sizes = [update.examples if weighting == "size" else 1 for update in updates]
    assert [update.share for update in updates] == pytest.approx([size / sum(sizes) for size in sizes])
    assert len({update.examples for update in updates}) > 1  # otherwise the two would be the same
    after = recorder.results[0].after.weights["head.bias"]
    expected = sum(update.share * update.weights["head.bias"] for update in updates)
    torch.testing.assert_close(after, expected)


@dataclass(frozen=True)
class Poisoned(Algorithm):
    """Clients with an odd id send what nobody can use."""

    kind: str = "nan"

    def aggregate(self, server, updates):
        assert all(update.client % 2 == 0 for update in updates)
        return super().aggregate(server, updates)


def poison(update, kind):
    weights = dict(update.weights)
    if kind == "nan":
        weights["head.bias"] = torch.full_like(weights["head.bias"], float("nan"))
    elif kind == "shape":
        weights["head.bias"] = torch.zeros(3)
    elif kind == "names":
        weights["other"] = weights.pop("head.bias")
    elif kind == "type":
        weights["head.bias"] = weights["head.bias"].double()
    elif kind == "empty":
        return replace(update, examples=0)
    elif kind == "payload":
        return replace(update, payload={"control": torch.tensor([float("inf")])})
    return replace(update, weights=weights)


@pytest.mark.parametrize("kind", ["nan", "shape", "names", "type", "empty", "payload"])
def test_an_unfit_update_is_rejected_counted_and_logged(tiny, monkeypatch, caplog, kind):
    from fedsol.federation.federation import Federation

    original = Federation.train
    monkeypatch.setattr(
        Federation, "train", lambda self, job: poison(original(self, job), kind if job.client % 2 else "")
    )
    run = fedsol.train(tiny.model_copy(update={"algorithm": {"name": "tests.training.test_training:Poisoned"}}))
    for row in run.rows:
        odd = [client for client in row["client_ids"] if client % 2]
        assert row["rejected"] == len(odd)
        assert row["clients"] == 4 - len(odd)
        assert all(f"client {client} is rejected" in caplog.text for client in odd)
    assert sum(row["rejected"] for row in run.rows) > 0


def test_a_round_without_a_fit_update_leaves_the_weights(tiny, monkeypatch):
    from fedsol.federation.federation import Federation

    original = Federation.train
    monkeypatch.setattr(Federation, "train", lambda self, job: poison(original(self, job), "nan"))
    recorder = Recorder()
    run = fedsol.train(tiny, [recorder])
    assert same_tensors(recorder.results[0].before.weights, run.weights)
    assert [row["clients"] for row in run.rows] == [0, 0]
    assert run.rows[0]["train_loss"] is None


def test_a_loss_that_is_not_finite_stops_the_run_with_what_was_good_saved(tiny, tmp_path):
    experiment = tiny.model_copy(update={"algorithm": {"name": "tests.support.user_code:Exploding"}})
    with pytest.raises(RunError, match="round 1: the test loss of the global model is not finite"):
        fedsol.train(experiment, out=tmp_path)
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_sampling_depends_on_seed_and_round_alone():
    experiment = Experiment(server={"fraction": 0.1})
    assert sample_clients(experiment, 100, 3) == sample_clients(experiment, 100, 3)
    assert sample_clients(experiment, 100, 3) != sample_clients(experiment, 100, 4)
    assert sample_clients(experiment, 100, 3) != sample_clients(experiment.override({"seed": 1}), 100, 3)
    assert len(set(sample_clients(experiment, 100, 3))) == 10
    assert len(sample_clients(experiment, 3, 1)) == 1  # at least one


def test_every_client_is_sampled_sooner_or_later():
    experiment = Experiment(server={"fraction": 0.1})
    seen = {client for t in range(1, 101) for client in sample_clients(experiment, 50, t)}
    assert seen == set(range(50))


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop", "adagrad"])
def test_any_torch_optimizer(tiny, optimizer):
    run = fedsol.train(tiny.override({"client.optimizer": optimizer, "client.lr": 0.001}))
    assert run.final_accuracy is not None


def test_clipping_bounds_a_plain_sgd_step(tiny):
    """With momentum and decay off, one step moves by at most lr * clip_norm."""
    experiment = tiny.override(
        {"client.clip_norm": 0.5, "client.momentum": 0.0, "client.weight_decay": 0.0, "client.lr": 1.0,
         "client.batch_size": 10_000, "rounds": 1}
    )  # fmt: skip
    recorder = Recorder()
    fedsol.train(experiment, [recorder])
    result = recorder.results[0]
    for update in result.updates:
        moved = torch.cat([(update.weights[n] - result.before.weights[n]).flatten() for n in update.weights])
        assert 0 < float(moved.norm()) <= 0.5 + 1e-4


def test_a_second_process_is_kept_out(tiny, tmp_path):
    from fedsol.runs.directory import RunDirectory

    fedsol.train(tiny, out=tmp_path)
    with RunDirectory(tmp_path).locked(), pytest.raises(InputError, match="in use by process"):
        fedsol.train(tiny, out=tmp_path, resume=True)


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "json"])
def test_a_damaged_checkpoint_is_passed_over(tiny, tmp_path, damage, caplog):
    experiment = tiny.override({"rounds": 4})
    whole = fedsol.train(experiment, out=tmp_path)
    newest = sorted((tmp_path / "checkpoints").glob("round-*"))[-1]
    file = newest / ("checkpoint.json" if damage == "json" else "server.safetensors")
    content = file.read_bytes()
    if damage == "truncate":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "remove":
        file.unlink()
    else:
        file.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    assert_same_run(fedsol.train(experiment, out=tmp_path, resume=True), whole)
    assert "this checkpoint is skipped" in caplog.text


def test_a_checkpoint_without_all_of_its_parts_is_passed_over(tiny, tmp_path, caplog):
    whole = fedsol.train(tiny, out=tmp_path)
    file = sorted((tmp_path / "checkpoints").glob("round-*"))[-1] / "checkpoint.json"
    description = json.loads(file.read_text().rpartition("}")[0] + "}")
    text = json.dumps({key: value for key, value in description.items() if key != "late"})
    file.write_text(f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}\n")
    assert_same_run(fedsol.train(tiny, out=tmp_path, resume=True), whole)
    assert "checkpoint.json: missing late" in caplog.text


def test_a_run_whose_rows_were_changed_is_left_alone(tiny, tmp_path):
    fedsol.train(tiny, out=tmp_path)
    file = tmp_path / "metrics.jsonl"
    first, *others = file.read_text().splitlines()
    changed = "\n".join([json.dumps({**json.loads(first), "test_accuracy": 1.0}), *others]) + "\n"
    file.write_text(changed)
    with pytest.raises(RunError, match=r"metrics\.jsonl: its rows changed after they were written"):
        fedsol.train(tiny.override({"rounds": 3}), out=tmp_path, resume=True)
    assert file.read_text() == changed


@pytest.mark.parametrize("rows", [2, 3])
def test_a_line_that_is_no_row_is_named_wherever_the_checkpoint_is(tiny, tmp_path, rows):
    experiment = tiny.override({"rounds": 5, "server.checkpoint_every": 3})
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(experiment, [StopAfter(3)], tmp_path)
    file = tmp_path / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    changed = "".join([*lines[:rows], "{\n", *lines[rows:], lines[-1]])
    file.write_text(changed)
    with pytest.raises(InputError, match=rf"metrics\.jsonl: line {rows + 1}: must be JSON"):
        fedsol.train(experiment, out=tmp_path, resume=True)
    assert file.read_text() == changed


def test_rows_whose_lines_end_as_on_windows_are_those_that_were_written(tiny, tmp_path):
    whole = fedsol.train(tiny, out=tmp_path)
    file = tmp_path / "metrics.jsonl"
    before = file.read_bytes()
    file.write_bytes(before.replace(b"\n", b"\r\n"))
    assert_same_run(fedsol.train(tiny, out=tmp_path, resume=True), whole)
    assert file.read_bytes() == before


def test_a_resumed_run_parses_no_earlier_row_before_it_trains(tiny, tmp_path, monkeypatch):
    fedsol.train(tiny, out=tmp_path)
    parsed, loads = [], json.loads
    monkeypatch.setattr(json, "loads", lambda text, **options: (parsed.append(text), loads(text, **options))[1])

    class Watch(Callback):
        def started(self, federation, rows):
            assert len(rows) == tiny.rounds

        def round_started(self, round_number, clients):
            self.rows = [text for text in parsed if "test_accuracy" in str(text)]

    watch, longer = Watch(), tiny.override({"rounds": tiny.rounds + 1})
    assert_same_run(fedsol.train(longer, [watch], tmp_path, resume=True), trained(longer))
    assert watch.rows == []


def test_what_is_not_a_run_directory_is_named(tiny, tmp_path):
    with pytest.raises(InputError, match=r"no run here \(no experiment\.toml\)"):
        fedsol.Run.load(tmp_path)
    with pytest.raises(InputError, match="the run is in memory only; train it with a directory"):
        _ = trained(tiny).path
    (tmp_path / "environment.json").write_text('{"id": "../../elsewhere"}')
    with pytest.raises(RunError, match=r"environment\.json: id: is missing or invalid"):
        RunDirectory(tmp_path).read_id()


def test_a_run_whose_checkpoints_are_all_gone_is_left_alone(tiny, tmp_path):
    fedsol.train(tiny, out=tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    for folder in (tmp_path / "checkpoints").glob("round-*"):
        (folder / "server.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match="no checkpoint is intact"):
        fedsol.train(tiny.override({"rounds": 2}), out=tmp_path, resume=True)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_damaged_client_state_makes_the_checkpoint_before_it_the_newest(tiny, tmp_path):
    experiment = tiny.override({"rounds": 4, "algorithm.name": "scaffold"})
    whole = fedsol.train(experiment, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(experiment, [StopAfter(3)], tmp_path / "parts")
    newest = sorted((tmp_path / "parts" / "checkpoints" / "clients").glob("*round-000003*"))[0]
    newest.write_bytes(newest.read_bytes() + b"x")
    assert_same_run(fedsol.train(experiment, out=tmp_path / "parts", resume=True), whole)


def test_a_row_that_cannot_be_written_ends_the_run_where_it_can_go_on(tiny, tmp_path, monkeypatch):
    from fedsol.runs.directory import RunDirectory

    experiment = tiny.override({"rounds": 4})
    whole = fedsol.train(experiment, out=tmp_path / "whole")
    original = RunDirectory.append_row

    def full_disk(self, row):
        if row["round"] == 3:
            raise RunError("metrics.jsonl: cannot be written: No space left on device")
        original(self, row)

    monkeypatch.setattr(RunDirectory, "append_row", full_disk)
    with pytest.raises(RunError, match="No space left"):
        fedsol.train(experiment, out=tmp_path / "parts")
    monkeypatch.undo()
    assert_same_run(fedsol.train(experiment, out=tmp_path / "parts", resume=True), whole)


def test_a_run_does_not_resume_with_different_data_or_another_partition(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arrays = uneven_clients()
    np.savez("mine.npz", **arrays)
    experiment = tiny.override({"data.name": "mine.npz", "data.partition": {"kind": "own"}, "server.fraction": 1.0})
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(experiment, [StopAfter(1)], "run")
    np.savez("mine.npz", **{**arrays, "x_train": arrays["x_train"] + 1})
    with pytest.raises(InputError, match=r"data of mine\.npz has changed"):
        fedsol.train(experiment, out="run", resume=True)
    np.savez("mine.npz", **{**arrays, "clients_train": arrays["clients_train"][::-1]})
    with pytest.raises(InputError, match="started with a different partition"):
        fedsol.train(experiment, out="run", resume=True)
    np.savez("mine.npz", **arrays)
    Path("run/partition.json").rename("elsewhere.json")
    with pytest.raises(InputError, match=r"run/partition\.json: is missing$"):
        fedsol.train(experiment, out="run", resume=True)
    Path("elsewhere.json").rename("run/partition.json")
    assert len(fedsol.train(experiment, out="run", resume=True).rows) == 2


@pytest.mark.parametrize("resume", [True, False])
def test_a_directory_with_parts_of_a_run_is_left_alone(tiny, tmp_path, resume):
    fedsol.train(tiny, out=tmp_path)
    (tmp_path / "experiment.toml").unlink()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "run.lock"}
    with pytest.raises(InputError, match=r"parts of a run but no experiment\.toml"):
        fedsol.train(tiny, out=tmp_path, resume=resume)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("rows", [0, 1])
def test_whole_checkpoints_without_their_rows_are_left_alone(tiny, tmp_path, rows):
    fedsol.train(tiny.override({"rounds": 4}), out=tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:rows]))
    before = sorted((tmp_path / "checkpoints").iterdir())
    with pytest.raises(RunError, match="no checkpoint is intact and covered"):
        fedsol.train(tiny.override({"rounds": 4}), out=tmp_path, resume=True)
    assert sorted((tmp_path / "checkpoints").iterdir()) == before


@pytest.mark.parametrize("kind", ["local", "workers"])
def test_a_gradient_without_a_name_is_an_error_that_names_it(tiny, kind):
    experiment = tiny.model_copy(update={"algorithm": {"name": "tests.support.user_code:Nameless"}})
    with pytest.raises(InputError, match=r"missing \['head.bias'\]"):
        fedsol.train(experiment.override({"engine.kind": kind, "engine.workers": 2}))


@dataclass(frozen=True)
class SeesTraining(Algorithm):
    """Notes in its payload whether the model was in training mode when the job began."""

    def begin(self, task, broadcast, state):
        return {"training": torch.tensor(float(task.model._model.training))}

    def finish(self, task, weights, steps, state):
        return {}, state


def test_a_job_always_begins_in_training_mode(tiny):
    recorder = Recorder()
    seen = tiny.model_copy(update={"algorithm": {"name": "tests.training.test_training:SeesTraining"}})
    fedsol.train(seen, [recorder])
    updates = [update for result in recorder.results for update in result.updates]
    assert {float(update.payload["training"]) for update in updates} == {1.0}


class FailingSave(Callback):
    def __init__(self):
        self.was_told = False

    def finished(self, run):
        self.was_told = True


def test_callbacks_hear_the_end_even_if_saving_fails(tiny, tmp_path, monkeypatch):
    from fedsol.runs.checkpoints import Checkpoints

    def full_disk(*arguments):
        raise RunError("checkpoints: cannot be written: No space left on device")

    monkeypatch.setattr(Checkpoints, "save", full_disk)
    watcher = FailingSave()
    with pytest.raises(RunError, match="No space left"):
        fedsol.train(tiny, [watcher], tmp_path)
    assert watcher.was_told


def test_the_work_of_a_checkpoint_does_not_grow_with_the_rounds(tiny, tmp_path, monkeypatch):
    """Each row becomes text once for the file, and once for the hash of all rows."""
    written = []
    for module in ("fedsol.runs.directory", "fedsol.training.loop"):
        monkeypatch.setattr(f"{module}.rows_to_text", lambda rows: written.extend(rows) or rows_to_text(rows))
    run = fedsol.train(tiny.override({"rounds": 5}), out=tmp_path / "run")
    assert len(written) == 2 * len(run.rows)
