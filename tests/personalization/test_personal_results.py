"""Results of a personalization: saved client by client, resumed exactly, summed up and compared."""

import csv
import json
import os
import shutil
import signal
from dataclasses import replace

import pytest

import fedsol
from fedsol import InputError, RunError
from fedsol.cli.personalize import _comparison_with_alone
from fedsol.engines.base import LocalEngine
from fedsol.federation.federation import Federation
from fedsol.federation.personal import EpochResult, PersonalResult
from fedsol.personalization.comparison import Entry, as_rows, check_baselines, read_entries
from fedsol.personalization.loop import Personalizer
from fedsol.personalization.results import PersonalDirectory, client_table
from fedsol.personalization.statistics import Losers, Spread, losers, spread, summary_of
from tests.support.cases import experiment

WORKERS = {"engine.kind": "workers", "engine.workers": 2}


def result(client, accuracies, size=10, mixing=None):
    """A client with these accuracies after 1, 2, … epochs."""
    after = tuple(EpochResult(epochs, 0, accuracy, mixing) for epochs, accuracy in enumerate(accuracies, start=1))
    return PersonalResult(client, size, classes=2, test_size=20, before=0.25, after=after)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    fedsol.train(experiment({"name": "fedavg"}, data__partition__held_out=0.2), out=folder)
    return folder


@pytest.fixture(scope="module")
def whole(run_folder):
    return fedsol.personalize(run_folder, changes={"epochs": (1, 2)})


def test_a_result_sums_itself_up(whole):
    assert whole.summary == summary_of(whole.results)
    assert [row["epochs"] for row in whole.summary["after"]] == [1, 2]


class StopAfterError(Exception):
    """Stands for a process that dies."""


def stop_after(count):
    def progress(done, clients):
        if done == count:
            raise StopAfterError

    return progress


@pytest.mark.parametrize("where", [{}, WORKERS])
def test_killed_and_resumed_it_ends_the_same(run_folder, whole, tmp_path, where):
    changes = {"epochs": (1, 2)}
    with pytest.raises(StopAfterError):
        Personalizer(where, stop_after(2)).run(run_folder, changes=changes, out=tmp_path)
    rows = tmp_path / "clients.jsonl"
    rows.write_bytes(rows.read_bytes()[:-7])  # the kill tore the last line
    assert len(PersonalDirectory(tmp_path).read_results()) == 1
    shown = []
    found = Personalizer(where, lambda *counts: shown.append(counts)).run(run_folder, None, changes, tmp_path, True)
    assert shown == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert found.results == whole.results == PersonalDirectory(tmp_path).read_results()
    again = Personalizer(engine=no_engine).run(run_folder, changes=changes, out=tmp_path, resume=True)
    assert again == found


def no_engine(federation):
    raise AssertionError("nothing is left to do")


def test_a_run_in_memory_is_as_good_as_one_on_disk(run_folder, whole):
    run = fedsol.Run.load(run_folder)
    assert fedsol.personalize(run, changes={"epochs": (1, 2)}) == whole


def test_ctrl_c_keeps_what_is_finished(run_folder, whole, tmp_path):
    def interrupt(done, clients):
        if done:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        Personalizer(progress=interrupt).run(run_folder, changes={"epochs": (1, 2)}, out=tmp_path)
    assert PersonalDirectory(tmp_path).read_results() == whole.results[:1]


def test_a_worker_that_dies_is_replaced(run_folder, whole, monkeypatch, tmp_path):
    parent, original = os.getpid(), Federation.training_samples

    def training_samples(self, client):
        if os.getpid() != parent and not (tmp_path / str(client)).exists():
            (tmp_path / str(client)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, client)

    monkeypatch.setattr(Federation, "training_samples", training_samples)
    assert fedsol.personalize(run_folder, changes={"epochs": (1, 2)}, where=WORKERS).results == whole.results
    assert len(list(tmp_path.iterdir())) == 4


def test_results_are_not_mixed_with_others(run_folder, tmp_path):
    out = tmp_path / "results"
    fedsol.personalize(run_folder, changes={"epochs": (1,)}, out=out)
    with pytest.raises(InputError, match="already has results"):
        fedsol.personalize(run_folder, changes={"epochs": (1,)}, out=out)
    with pytest.raises(InputError, match="was started with different values of settings"):
        fedsol.personalize(run_folder, changes={"epochs": (2,)}, out=out, resume=True)
    other = tmp_path / "other"
    fedsol.train(experiment({"name": "fedavg"}, data__partition__held_out=0.2, client__lr=0.01), out=other)
    with pytest.raises(InputError, match="was started with different values of client, settings, weights_sha256"):
        fedsol.personalize(other, changes={"epochs": (1,)}, out=out, resume=True)
    with pytest.raises(InputError, match="resume: requires the directory"):
        fedsol.personalize(run_folder, resume=True)


def test_results_of_other_local_training_are_others(tmp_path):
    """The weights of a Local-only run are the initial ones, so they do not tell."""
    for batch_size in (50, 20):
        settings = experiment({"name": "local-only", "epochs": 1}, client__batch_size=batch_size)
        fedsol.train(settings, out=tmp_path / str(batch_size))
    fedsol.personalize(tmp_path / "50", out=tmp_path / "out")
    with pytest.raises(InputError, match="was started with different values of client"):
        fedsol.personalize(tmp_path / "20", out=tmp_path / "out", resume=True)


def test_what_an_earlier_version_began_is_finished(run_folder, whole, tmp_path):
    """It wrote fewer keys, and fewer settings."""
    changes = {"epochs": (1, 2)}
    fedsol.personalize(run_folder, changes=changes, out=tmp_path)
    path = tmp_path / "personal.json"
    description = json.loads(path.read_text())
    del description["client"], description["model"], description["settings"]["validation"]
    path.write_text(json.dumps(description))
    found = Personalizer(engine=no_engine).run(run_folder, changes=changes, out=tmp_path, resume=True)
    assert found.results == whole.results


@pytest.mark.parametrize("text", ["no JSON", "[]", "{}", '{"settings": {"epochs": 1}}'])
def test_a_damaged_description_is_named(run_folder, tmp_path, text):
    (tmp_path / "personal.json").write_text(text)
    with pytest.raises(InputError, match=r"personal\.json: must be the description of a personalization"):
        fedsol.personalize(run_folder, out=tmp_path, resume=True)


def test_a_damaged_line_is_named(run_folder, tmp_path):
    fedsol.personalize(run_folder, changes={"epochs": (1,)}, out=tmp_path)
    (tmp_path / "clients.jsonl").write_text('{"client": 0}\n')
    with pytest.raises(InputError, match=r"clients\.jsonl: line 1: must be the result of a client"):
        fedsol.personalize(run_folder, changes={"epochs": (1,)}, out=tmp_path, resume=True)


def test_bad_settings_leave_nothing_behind(run_folder, tmp_path):
    with pytest.raises(InputError, match="k: must be greater than or equal to 1"):
        fedsol.personalize(run_folder, "knn-per", {"k": 0}, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_run_without_a_model_is_refused(tmp_path):
    folder = tmp_path / "run"
    fedsol.train(experiment({"name": "fedavg"}), out=folder)
    for checkpoint in (folder / "checkpoints").glob("round-*"):
        (checkpoint / "checkpoint.json").unlink()
    for run in (folder, fedsol.Run.load(folder)):
        with pytest.raises(InputError, match=r"run: has no global model yet \(no intact checkpoint"):
            fedsol.personalize(run)


def test_a_killed_run_has_the_model_of_its_last_checkpoint_however_it_is_given(tmp_path):
    fedsol.train(experiment({"name": "fedavg"}, server__checkpoint_every=1), out=tmp_path)
    shutil.rmtree(tmp_path / "checkpoints" / "round-000002")
    found = [fedsol.personalize(run, changes={"epochs": (0,)}) for run in (tmp_path, fedsol.Run.load(tmp_path))]
    assert [each.description["settings"]["after_round"] for each in found] == [1, 1]
    assert found[0].results == found[1].results


def test_a_model_of_too_few_rounds_is_said_to_be_one(tmp_path, caplog):
    fedsol.train(experiment({"name": "fedavg"}), out=tmp_path)
    text = (tmp_path / "experiment.toml").read_text()
    (tmp_path / "experiment.toml").write_text(text.replace("rounds = 2", "rounds = 3"))
    found = fedsol.personalize(tmp_path, changes={"epochs": (0,)})
    assert "only 2 of 3 rounds are done" in caplog.text
    assert found.description["settings"]["after_round"] == 2


class Forgetful(LocalEngine):
    """Never answers for client 2."""

    def run(self, tasks):
        return super().run([task for task in tasks if task.client != 2])


def test_clients_that_do_not_answer_can_be_asked_again(run_folder, whole, tmp_path):
    changes = {"epochs": (1, 2)}
    with pytest.raises(RunError, match=r"no result from clients \[2\]"):
        Personalizer(engine=Forgetful).run(run_folder, changes=changes, out=tmp_path)
    assert fedsol.personalize(run_folder, changes=changes, out=tmp_path, resume=True).results == whole.results


def test_the_spread_by_hand():
    assert spread([0.5, None, 1.0, 0.0, 0.5]) == Spread(4, 0.5, 0.125**0.5, 0.0, 1.0)
    accuracies = [number / 20 for number in range(20)]
    outer = spread(accuracies)
    assert outer.worst_decile == pytest.approx((0 + 1) / 2 / 20)  # two of twenty
    assert outer.best_decile == pytest.approx((18 + 19) / 2 / 20)
    assert spread([0.0] * 9 + [0.1] * 2).best_decile == pytest.approx(0.1)  # two of eleven: at least a tenth
    assert spread([None]) == Spread(0, None, None, None, None)


def test_losers_by_hand():
    results = [
        result(0, [0.5], size=10),
        result(1, [0.5], size=20),
        result(2, [0.5], size=30),
        result(3, [None]),
        result(4, [0.1], size=90),
    ]
    alone = {0: 0.75, 1: 0.5, 2: 0.25, 3: 1.0, 4: 0.2}
    assert losers(results, 1, alone) == Losers((0, 4), 4, pytest.approx(0.175), 0.25, 50.0, 25.0)
    assert losers(results[1:3], 1, alone) == Losers((), 2, None, None, None, 25.0)
    rows = summary_of(results, alone)["after"]
    assert rows[0]["losers"]["clients"] == (0, 4)
    assert "losers" not in summary_of(results)["after"][0]


def test_the_table_of_clients_by_hand():
    results = [result(0, [0.5, 0.75]), result(1, [None, None], size=3)]
    assert client_table(results, None) == (
        "client,size,classes,test_size,before,after_1,after_2\n0,10,2,20,0.25,0.5,0.75\n1,3,2,20,0.25,,\n"
    )
    rows = list(csv.DictReader(client_table(results, {0: 0.6, 1: 0.1}).splitlines()))
    assert [rows[0][key] for key in ("local_only", "loses_1", "loses_2")] == ["0.6", "1", "0"]
    assert [rows[1][key] for key in ("local_only", "loses_1", "loses_2")] == ["0.1", "", ""]
    named = client_table(results, None, ["north", "south"]).splitlines()
    assert named[0].startswith("client,name,size,")
    assert [line[:8] for line in named[1:]] == ["0,north,", "1,south,"]
    mixed = [replace(one, after=tuple(replace(o, mixing=0.3) for o in one.after)) for one in results[:1]]
    assert client_table(mixed, None).splitlines()[0].endswith("after_1,after_2,mixing_1,mixing_2")


def test_clients_that_do_better_alone_have_their_names(tmp_path):
    results = [result(0, [0.5]), result(1, [0.75]), result(2, [0.25])]
    description = {"seed": 0, "clients": 3, "client_names": ["a", "b", "c"]}
    entry = Entry("fedavg + finetune", PersonalDirectory(tmp_path), description, results, {0: 0.6, 1: 0.5, 2: 0.5})
    (row,) = as_rows([entry])
    assert row["losers"]["clients"] == (0, 2)
    assert _comparison_with_alone(row).endswith("clients a, c.")
    (row,) = as_rows([replace(entry, description={"seed": 0, "clients": 3})])
    assert _comparison_with_alone(row).endswith("clients 0, 2.")


@pytest.fixture(scope="module")
def compared(run_folder, tmp_path_factory):
    """FedAvg fine-tuned and with neighbors, Local-only of the same clients, and Local-only of others."""
    folder = tmp_path_factory.mktemp("results")
    fedsol.personalize(run_folder, changes={"epochs": (1,)}, out=folder / "tuned")
    fedsol.personalize(run_folder, "knn-per", {"epochs": (1,)}, out=folder / "knn")
    fedsol.personalize(run_folder, "local-only", {"epochs": (2,)}, out=folder / "alone")
    others = fedsol.train(experiment({"name": "local-only"}, seed=1))
    fedsol.personalize(others, changes={"epochs": (1,)}, out=folder / "others")
    return folder


def test_local_only_among_the_results_is_what_the_others_are_compared_with(compared):
    paths = [compared / name for name in ("tuned", "knn", "alone")]
    tuned, knn, alone = read_entries(paths)
    assert [entry.label for entry in (tuned, knn, alone)] == ["fedavg + finetune", "fedavg + knn-per", "local-only"]
    expected = {one.client: one.after[0].accuracy for one in alone.results}
    assert tuned.alone == knn.alone == expected
    assert alone.alone is None
    rows = as_rows([tuned, knn, alone])
    assert [(row["epochs"], "losers" in row) for row in rows] == [(1, True), (1, True), (2, False)]
    assert read_entries(paths[:1])[0].alone is None
    assert read_entries(paths[:1], [compared / "alone"])[0].alone == expected


def test_who_loses_is_said_only_of_the_same_tests(run_folder, tmp_path):
    """A client that chooses on half of what it held out is tested on the other half: so must Local-only be."""
    held_out = {"test": "held-out", "epochs": (1,)}
    fedsol.personalize(run_folder, "knn-per", {**held_out, "mixing": "chosen"}, out=tmp_path / "chosen")
    fedsol.personalize(run_folder, "local-only", held_out, out=tmp_path / "all")
    fedsol.personalize(run_folder, "local-only", {**held_out, "validation": 0.5}, out=tmp_path / "half")
    assert read_entries([tmp_path / "chosen", tmp_path / "all"])[0].alone is None
    chosen, half = read_entries([tmp_path / "chosen", tmp_path / "half"])
    assert chosen.alone == {one.client: one.after[0].accuracy for one in half.results}
    assert [one.test_size for one in chosen.results] == [one.test_size for one in half.results]


def test_what_cannot_be_compared_is_refused(compared, tmp_path):
    with pytest.raises(InputError, match="its method must be local-only"):
        read_entries([compared / "tuned"], [compared / "knn"])
    with pytest.raises(InputError, match="must have the same clients and test sets"):
        check_baselines([compared / "others"], {read_entries([compared / "tuned"])[0].federation})
    check_baselines([compared / "alone"], {read_entries([compared / "tuned"])[0].federation})
    with pytest.raises(InputError, match=r"no personal\.json"):
        read_entries([tmp_path])
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    for name in ("personal.json", "clients.jsonl"):
        (unfinished / name).write_bytes((compared / "tuned" / name).read_bytes())
    (unfinished / "clients.jsonl").write_text((unfinished / "clients.jsonl").read_text().split("\n")[0] + "\n")
    with pytest.raises(InputError, match=r"is not finished \(1 of 4 clients\)"):
        read_entries([unfinished])


def test_labels_tell_results_apart(compared, tmp_path):
    same = tmp_path / "same"
    same.mkdir()
    for name in ("personal.json", "clients.jsonl"):
        (same / name).write_bytes((compared / "tuned" / name).read_bytes())
    both = read_entries([compared / "tuned", same])
    assert [entry.label for entry in both] == [str(compared / "tuned"), str(same)]
    description = json.loads((same / "personal.json").read_text())
    (same / "personal.json").write_text(json.dumps({**description, "seed": 7}))
    labels = [entry.label for entry in read_entries([compared / "tuned", same])]
    assert labels == ["fedavg + finetune, seed 0", "fedavg + finetune, seed 7"]
    changed = {**description, "algorithm": {"name": "fedavg", "rho": 2.0}}
    (same / "personal.json").write_text(json.dumps(changed))
    labels = [entry.label for entry in read_entries([compared / "tuned", same])]
    assert labels == ["fedavg + finetune", "fedavg + finetune, rho = 2.0"]
    other = tmp_path / "other"
    shutil.copytree(same, other)
    (other / "personal.json").write_text(json.dumps({**changed, "seed": 7}))
    (same / "personal.json").write_text(json.dumps({**changed, "algorithm": {"name": "fedavg", "rho": 1.0}, "seed": 7}))
    plain = tmp_path / "plain"
    shutil.copytree(compared / "tuned", plain)
    (plain / "personal.json").write_text(json.dumps({**changed, "seed": 0}))
    labels = [entry.label for entry in read_entries([same, other, plain])]
    assert labels[1:] == ["fedavg + finetune, rho = 2.0, seed 7", "fedavg + finetune, seed 0"]
