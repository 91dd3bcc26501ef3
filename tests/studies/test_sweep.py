"""Grids, cells side by side, resuming, the table, and search."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

import fedsol
from fedsol import Experiment, InputError, RunError
from fedsol.algorithms.base import Algorithm
from fedsol.cli.app import app
from fedsol.studies.grid import Choice, Range, grid_variants, parse_grid
from fedsol.studies.run_many import RunSpec, Study, default_jobs, run_many
from fedsol.studies.search import JOURNAL, best_result, search
from fedsol.studies.sweep import sweep
from tests.support.runs import assert_same_run


def test_grids_are_parsed():
    assert parse_grid(["algorithm.rho=0.5,1", "algorithm.perturb=head,all"]) == [
        Choice("algorithm.rho", (0.5, 1)),
        Choice("algorithm.perturb", ("head", "all")),
    ]
    assert parse_grid(["client.epochs=1..10", "client.lr=log:1e-3..0.1", "algorithm.rho=0.1..5"]) == [
        Range("client.epochs", 1, 10),
        Range("client.lr", 0.001, 0.1, log=True),
        Range("algorithm.rho", 0.1, 5),
    ]
    assert parse_grid(["data.name=../one.npz,../two.npz"]) == [Choice("data.name", ("../one.npz", "../two.npz"))]
    assert parse_grid(["a=-1..1.5"]) == [Range("a", -1, 1.5)]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "--grid: is missing"),
        (["rho"], "must be key=value"),
        (["=1,2"], "must be key=value"),
        (["a="], "must be key=value"),
        (["a=1,1"], "must have one value or more, all different"),
        (["a=,"], "must have one value or more, all different"),
        (["a=1", "a=2"], "a must be given only once"),
        (["seed=1,2"], "use --seeds"),
        (["a=2..1"], "the lower one first"),
        (["a=x..y"], "must be numbers"),
        (["a=log:0..1"], "must be greater than 0"),
    ],
)
def test_bad_grids_are_named(texts, message):
    with pytest.raises(InputError, match=message):
        parse_grid(texts)


def test_a_grid_is_the_product_of_its_values(tiny):
    variants = grid_variants(parse_grid(["algorithm.name=fedavg,fedsol", "client.lr=0.01,0.1"]), tiny)
    assert [variant.label for variant in variants] == [
        "algorithm.name=fedavg client.lr=0.01",
        "algorithm.name=fedavg client.lr=0.1",
        "algorithm.name=fedsol client.lr=0.01",
        "algorithm.name=fedsol client.lr=0.1",
    ]
    assert variants[3].experiment.client.lr == 0.1
    assert variants[3].experiment.algorithm["name"] == "fedsol"


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("algorithm.rho=1,2", "algorithm.rho: unknown key"),
        ("client.lr=0.1,-1", r"client.lr: must be greater than 0 \(got -1\)"),
        ("client.lr=0.1..1", "requires --search N"),
    ],
)
def test_a_bad_cell_stops_the_grid_before_it_runs(tiny, grid, message):
    with pytest.raises(InputError, match=message):
        grid_variants(parse_grid([grid]), tiny)


def rows_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_runs_side_by_side_are_the_runs_one_after_another(tiny, tmp_path):
    axes = parse_grid(["client.lr=0.01,0.05"])
    heard = []
    two = sweep(
        axes, tiny, Study(tmp_path / "two", [0, 1], jobs=2, finished=lambda outcome: heard.append(outcome.spec.label))
    )
    one = sweep(axes, tiny, Study(tmp_path / "one", [0, 1], jobs=1))
    assert sorted(heard) == [f"client.lr={lr} seed {seed}" for lr in ("0.01", "0.05") for seed in (0, 1)]
    for left, right in zip(two.results, one.results, strict=True):
        assert two.settings(left) == one.settings(right)
        for run, other in zip(left.runs, right.runs, strict=True):
            assert_same_run(run, other)
    row = rows_of(tmp_path / "two" / "sweep.csv")[1]
    finals = [run.final_accuracy for run in two.results[1].runs]
    assert row["client.lr"] == "0.05"
    assert row["seeds"] == "2"
    assert float(row["final_mean"]) == pytest.approx(sum(finals) / 2, abs=1e-6)
    assert float(row["final_std"]) == pytest.approx(abs(finals[0] - finals[1]) / 2**0.5, abs=1e-6)
    table = json.loads((tmp_path / "two" / "sweep.json").read_text())
    assert table[0]["settings"] == {"client.lr": 0.01}


def test_a_sweep_is_resumed_cell_by_cell(tiny, tmp_path):
    axes = parse_grid(["client.lr=0.01,0.05"])
    whole = sweep(axes, tiny, Study(tmp_path, [0], jobs=2))
    with pytest.raises(InputError, match="already has a run"):
        sweep(axes, tiny, Study(tmp_path, [0], jobs=2))
    kept = (tmp_path / "client.lr=0.01" / "seed-0" / "environment.json").read_bytes()
    wider = sweep(parse_grid(["client.lr=0.01,0.05,0.1"]), tiny, Study(tmp_path, [0], resume=True, jobs=2))
    assert (tmp_path / "client.lr=0.01" / "seed-0" / "environment.json").read_bytes() == kept
    assert len(wider.results) == 3
    assert_same_run(wider.results[0].runs[0], whole.results[0].runs[0])
    with pytest.raises(InputError, match=r"started with different values of client\.epochs"):
        sweep(axes, tiny.override({"client.epochs": 2}), Study(tmp_path, [0], resume=True, jobs=2))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_fails_does_not_stop_the_others(tiny, tmp_path, jobs):
    base = tiny.override({"algorithm.name": "tests.support.user_code:FailsAbove"})
    found = sweep(parse_grid(["algorithm.factor=3.0,1.0"]), base, Study(tmp_path, [0], jobs=jobs))
    failed, fine = found.results
    assert "not finite" in failed.failures[0]
    assert failed.runs == []
    assert len(fine.runs) == 1
    rows = rows_of(tmp_path / "sweep.csv")
    assert [row["failures"] for row in rows] == ["1", "0"]
    assert rows[0]["final_mean"] == ""


@dataclass(frozen=True)
class Dies(Algorithm):
    """Takes its process with it."""

    def aggregate(self, server, updates):
        os._exit(7)


def test_a_process_that_dies_is_a_failure_with_its_exit_code(tiny, tmp_path):
    specs = [
        RunSpec(name, tiny.override({"algorithm.name": algorithm}), tmp_path / name)
        for name, algorithm in (("dies", "tests.studies.test_sweep:Dies"), ("lives", "fedavg"))
    ]
    outcomes = {outcome.spec.label: outcome for outcome in run_many(specs, lambda _: (), False, jobs=2)}
    assert outcomes["dies"].failure == "dies: its process ended with exit code 7"
    assert outcomes["lives"].run.final_accuracy is not None


def test_as_many_jobs_as_cores_but_no_more_than_runs(tiny, tmp_path):
    specs = [RunSpec("a", tiny, tmp_path / "a")]
    assert default_jobs(specs) == 1
    assert default_jobs(specs * 100) == len(os.sched_getaffinity(0))


def test_ctrl_c_saves_every_run_and_the_sweep_goes_on(tmp_path):
    """A real signal to the parent alone: it is passed on, and nothing is torn."""
    (tmp_path / "e.toml").write_text(
        Experiment(
            rounds=100_000, data={"partition": {"clients": 8}}, client={"epochs": 1}, algorithm={"name": "fedavg"}
        ).to_toml()
    )
    out = tmp_path / "out"
    command = [sys.executable, "-m", "fedsol", "sweep", str(tmp_path / "e.toml"), "--grid", "client.lr=0.01,0.02"]
    command += ["--seeds", "0", "--jobs", "2", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        folders = [out / f"client.lr={lr}" / "seed-0" for lr in ("0.01", "0.02")]
        while not all(
            (folder / "checkpoints").is_dir() and any((folder / "checkpoints").iterdir()) for folder in folders
        ):
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert "--resume" in output
    for folder in folders:
        assert fedsol.Run.load(folder).rows
        assert (folder / "summary.json").is_file()


def test_search_proposes_the_same_again_and_goes_on(tiny, tmp_path):
    axes = parse_grid(["client.lr=log:0.001..0.1", "client.epochs=1..2", "algorithm.name=fedavg,fedprox"])
    whole = search(axes, tiny, Study(tmp_path / "whole", [0]), 4)
    search(axes, tiny, Study(tmp_path / "cut", [0]), 2)
    again = search(axes, tiny, Study(tmp_path / "cut", [0], resume=True), 4)
    assert list(map(again.settings, again.results)) == list(map(whole.settings, whole.results))
    settings = [whole.settings(result) for result in whole.results]
    assert len({point["client.lr"] for point in settings}) == 4
    assert all(0.001 <= point["client.lr"] <= 0.1 for point in settings)
    assert all(point["client.epochs"] in (1, 2) for point in settings)
    finals = [result.runs[0].final_accuracy for result in whole.results]
    assert best_result(whole).runs[0].final_accuracy == max(finals)
    assert all(json.loads(line) for line in (tmp_path / "whole" / JOURNAL).read_text().splitlines())


def test_a_search_killed_within_a_trial_makes_that_trial_again(tiny, tmp_path, monkeypatch):
    axes = parse_grid(["client.lr=log:0.001..0.1"])
    whole = search(axes, tiny, Study(tmp_path / "whole", [0]), 3)
    import fedsol.studies.search

    real, calls = fedsol.studies.search.run_variants, []

    def dying(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(fedsol.studies.search, "run_variants", dying)
    with pytest.raises(KeyboardInterrupt):
        search(axes, tiny, Study(tmp_path / "cut", [0]), 3)
    again = search(axes, tiny, Study(tmp_path / "cut", [0], resume=True), 3)
    assert list(map(again.settings, again.results)) == list(map(whole.settings, whole.results))


def test_bad_searches_are_refused(tiny, tmp_path):
    axes = parse_grid(["client.lr=0.01..0.1"])
    for option in ("--search", "--jobs"):
        done = CliRunner().invoke(app, ["sweep", "--grid", "client.lr=0.01..0.1", option, "0"])
        assert done.exit_code == 2
        assert option in done.output
    with pytest.raises(InputError, match=r"client\.epochs: must be greater than or equal to 1 \(got 0\)"):
        search(parse_grid(["client.epochs=0..3"]), tiny, Study(tmp_path / "a", [0]), 1)
    assert not (tmp_path / "a").exists()
    search(axes, tiny, Study(tmp_path / "b", [0]), 1)
    with pytest.raises(InputError, match="already has a search"):
        search(axes, tiny, Study(tmp_path / "b", [0]), 1)
    with pytest.raises(InputError, match="--grid: must be that of the search in"):
        search(parse_grid(["client.lr=0.01..0.2"]), tiny, Study(tmp_path / "b", [0], resume=True), 2)


def test_without_optuna_a_search_says_how_to_get_it(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"pip install 'fedsol\[search\]'"):
        search(parse_grid(["client.lr=0.01..0.1"]), tiny, Study(tmp_path, [0]), 1)


def test_a_search_in_which_every_run_failed_has_no_best(tiny, tmp_path):
    failing = tiny.override({"algorithm.name": "tests.support.user_code:FailsAbove"})
    found = search(parse_grid(["algorithm.factor=3.0..4.0"]), failing, Study(tmp_path, [0]), 1)
    assert found.results[0].failures
    with pytest.raises(RunError, match=r"^search: a run failed with every setting$"):
        best_result(found)
