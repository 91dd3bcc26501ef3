"""Python as people type it: names, settings as arguments, data itself, many runs, pictures."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedsol
from fedsol.algorithms.fedprox import FedProx

SHORT = {
    "rounds": 2,
    "engine": "local",
    "client": {"epochs": 1},
    "data": {"name": "digits", "partition": {"clients": 8}},
}


def test_an_experiment_by_names_is_the_same_as_by_tables():
    short = fedsol.Experiment(data="digits", algorithm="fedavg", engine="local", model="small")
    tables = {"data": {"name": "digits"}, "algorithm": {"name": "fedavg"}}
    assert short == fedsol.Experiment(**tables, engine={"kind": "local"}, model={"name": "small"})


def test_train_takes_settings_as_arguments(tmp_path):
    run = fedsol.train("quickstart", algorithm="fedprox", **SHORT)
    assert (run.experiment.algorithm["name"], run.experiment.rounds, run.experiment.client.epochs) == ("fedprox", 2, 1)
    dotted = fedsol.train("quickstart", **SHORT, **{"algorithm.name": "fedprox"})
    same = fedsol.train(run.experiment)
    itself = fedsol.train("quickstart", algorithm=FedProx(), **SHORT)
    for other in (dotted, same, itself):
        assert other.weights.keys() == run.weights.keys()
        assert all(bool((other.weights[name] == run.weights[name]).all()) for name in run.weights)


def test_a_run_directory_is_resumed_or_overwritten(tmp_path):
    out = tmp_path / "run"
    fedsol.train(algorithm="fedavg", out=out, **SHORT)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(fedsol.InputError, match="already has a run; resume it"):
        fedsol.train(algorithm="fedavg", out=out, **SHORT)
    run = fedsol.train(algorithm="fedavg", out=out, overwrite=True, **{**SHORT, "rounds": 1})
    assert len(fedsol.load(out).rows) == len(run.rows) == 1
    assert (out / "notes.txt").read_text() == "mine"
    for wrong in ({"overwrite": True}, {"out": out, "overwrite": True, "resume": True}):
        with pytest.raises(fedsol.InputError, match=r"^overwrite: "):
            fedsol.train(**wrong)


class _StopsAt(fedsol.Callback):
    def __init__(self, number):
        self.number = number

    def round_finished(self, result):
        if result.round == self.number:
            raise fedsol.StopTraining("enough")


class _Counts(fedsol.Callback):
    rounds, ended = 0, False

    def round_finished(self, result):
        self.rounds += 1

    def finished(self, run):
        self.ended = True


def test_a_callback_stops_a_run_which_can_be_resumed(tmp_path):
    counter, settings = _Counts(), {**SHORT, "rounds": 3}
    run = fedsol.train(callbacks=[_StopsAt(1), counter], out=tmp_path / "run", **settings)
    assert (run.stopped.round, run.stopped.reason, len(run.rows)) == (1, "enough", 1)
    assert (counter.rounds, counter.ended) == (1, True)  # the others see the round as well
    alone = fedsol.train(callbacks=_StopsAt(1), **settings)
    assert alone.stopped == run.stopped
    rest = fedsol.train(out=tmp_path / "run", resume=True, **settings)
    assert rest.stopped is None
    whole = fedsol.train(**settings)
    assert all(bool((whole.weights[name] == rest.weights[name]).all()) for name in whole.weights)


def test_data_goes_straight_in():
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(80, 3)).astype(np.float32), np.arange(80) % 2
    settings = {"rounds": 1, "engine": "local", "client": {"epochs": 1}}
    few = {"data.partition.clients": 4, "data.partition.kind": "iid", **settings}
    of_arrays = fedsol.train(data=(inputs, labels, inputs[:20], labels[:20]), **few)
    of_dict = fedsol.train(
        data={"x_train": inputs, "y_train": labels, "x_test": inputs[:20], "y_test": labels[:20]}, **few
    )
    assert of_arrays.final_result == of_dict.final_result
    frame = pd.DataFrame(inputs, columns=["a", "b", "c"]).assign(ill=labels)
    table = fedsol.train(data=frame, **few, **{"data.target": "ill", "data.test_fraction": 0.25})
    assert table.description.target == ("ill",)
    with pytest.raises(fedsol.InputError, match=r"data: a tuple must be \(x, y\)"):
        fedsol.train(data=(inputs,))


def test_compare_sweep_plot_and_report(tmp_path, monkeypatch):
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    found = fedsol.compare(["fedavg", FedProx(mu=0.5)], seeds=[0, 1], **SHORT)
    heading, _, *rows = repr(found).splitlines()
    assert heading.split() == ["final_accuracy.mean", "final_accuracy.std", "best_accuracy.mean", "best_accuracy.std"]
    assert [row.split()[0] for row in rows] == ["fedavg", "fedprox"]
    assert list(found.table.index) == ["fedavg", "fedprox"]
    assert found.table.loc["fedavg", "final_accuracy.mean"] == np.mean([run.final_result for run in found.runs[:2]])
    assert len(found.plot().lines) == 2
    with pytest.raises(fedsol.InputError, match="variants: fedavg and fedavg are the same"):
        fedsol.compare(["fedavg", "fedavg"], **SHORT)
    with pytest.raises(fedsol.InputError, match="seeds: must be different whole numbers"):
        fedsol.compare(seeds=[0, 0], **SHORT)
    with pytest.raises(fedsol.InputError, match=r"seeds: must be different whole numbers .* \(got 3\)"):
        fedsol.compare(seeds=3, **SHORT)
    with pytest.raises(fedsol.InputError, match=r"grid: 'client.lr' must be a list of values \(got 0.1\)"):
        fedsol.sweep({"client.lr": 0.1}, **SHORT)
    alone = fedsol.compare("fedavg", seeds=[0], **SHORT)
    assert alone.runs[0].final_result == found.runs[0].final_result
    assert [name for name in alone.table if name.endswith(("mean", "std"))] == [
        "final_accuracy.mean",
        "best_accuracy.mean",
    ]
    axes = fedsol.plot(found.runs)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["fedavg", "fedprox"]
    assert fedsol.plot(found.directory, axes) is axes
    assert fedsol.report(found.directory, tmp_path / "page.html").read_text().startswith("<!")
    swept = fedsol.sweep({"client.lr": [0.1, 0.2]}, algorithm="fedavg", seeds=[0], out=tmp_path / "sweep", **SHORT)
    assert [row["settings"] for row in swept.rows()] == [{"client.lr": 0.1}, {"client.lr": 0.2}]
    assert [row.split()[0] for row in repr(swept).splitlines()[2:]] == ["client.lr=0.1", "client.lr=0.2"]
    assert list(swept.table["final_accuracy.mean"]) == [run.final_result for run in swept.runs]
    pyplot.close("all")


def test_wrong_arguments_are_named():
    for arguments, message in (
        ({"rouns": 3}, "rouns: unknown key; did you mean 'rounds'"),
        ({"algorithm": "fedsool"}, "algorithm.name: unknown value 'fedsool'"),
        ({"experiment": 3}, "experiment: must be an Experiment"),
    ):
        with pytest.raises(fedsol.InputError, match=message):
            fedsol.train(**arguments)


def test_a_notebook_shows_one_line_that_is_redrawn(monkeypatch):
    import IPython.display

    from fedsol.training.progress import NotebookProgress

    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append((content["text/plain"], raw))

    monkeypatch.setattr(IPython.display, "display", lambda *_, **__: Handle())
    run = fedsol.train(callbacks=[NotebookProgress("mine")], algorithm="fedavg", progress=False, **SHORT)
    assert len(run.rows) == 2
    assert [text.split("  ")[0] for text, _ in shown] == ["mine: round 1/2", "mine: round 2/2", "mine: round 2/2"]
    assert all(raw for _, raw in shown)


@pytest.mark.full
def test_the_page_about_python_runs_as_it_is_written(tmp_path):
    page = Path(__file__).resolve().parents[1] / "docs" / "in-python.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "page.py").write_text("\n\n".join(blocks))
    environment = {**os.environ, "MPLBACKEND": "agg"}
    command = [sys.executable, "page.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "half of the answers are right" in done.stdout
