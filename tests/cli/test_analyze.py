"""`fedsol analyze`, `fedsol sweep` and `fedsol run --analyze` from the command line."""

import json
from functools import cache
from pathlib import Path

import pytest

from fedsol.analysis import toy
from tests.support.cli import TINY, fedsol

EVERY = ["curves", "partition", "orthogonality", "divergence", "preservation", "strength", "landscape", "cost", "toy"]
QUICK = ["--examples", "40", "--points", "3", "--repetitions", "1"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


TOY = cache(toy.toy)


@pytest.fixture(autouse=True)
def _the_toy_once(monkeypatch):
    """It depends on nothing, and its thousands of steps take longer than a run."""
    monkeypatch.setattr(toy, "toy", TOY)


@pytest.fixture
def unrendered(monkeypatch):
    """Pictures are drawn, but their files are empty: for tests of what analyses find."""
    monkeypatch.setattr("fedsol.plots.style.figure_bytes", lambda figure, kind: b"")


def names_in(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def run(name, *options):
    done = fedsol("run", *TINY, "--set", f"algorithm.name={name}", "--out", name, *options)
    assert done.exit_code == 0, done.output


def test_all_analyses_of_one_run_are_figures_and_data():
    run("fedsol")
    done = fedsol("analyze", "fedsol", *QUICK, "--rho", "0,1")
    assert done.exit_code == 0, done.output
    stems = {"partition": "partition-picture"}
    for name in EVERY:
        for ending in ("png", "pdf", "json"):
            file = Path("fedsol/analysis") / f"{stems.get(name, name)}.{ending}"
            assert file.stat().st_size > 100, file
    found = json.loads(Path("fedsol/analysis/orthogonality.json").read_text())
    assert [item["rho"] for item in found] == [0.0, 1.0]
    assert len(found[0]["clients"]) == 2  # a fifth of eight clients
    assert "rho = 1: mean cosine" in done.output
    assert "orthogonality-rounds" not in done.output


def test_a_run_without_rounds_for_clients_is_analyzed_like_any_other(unrendered):
    run("local-only")
    done = fedsol("analyze", "local-only", *QUICK)
    assert done.exit_code == 0, done.output
    for name in ("divergence", "preservation", "strength"):
        ((found,),) = [series["runs"] for series in json.loads(Path(f"local-only/analysis/{name}.json").read_text())]
        assert found
    assert {"orthogonality.json", "landscape.json", "cost.json", "toy.json"} <= set(names_in("local-only/analysis"))


def test_runs_are_compared_over_the_rounds_that_were_analyzed(unrendered):
    for name in ("fedavg", "fedsol"):
        run(name, "--analyze", "divergence,preservation,strength,orthogonality")
    done = fedsol("analyze", "fedavg", "fedsol", "--what", "divergence,preservation,orthogonality", "-o", "figures")
    assert done.exit_code == 0, done.output
    found = json.loads(Path("figures/divergence.json").read_text())
    assert [series["label"] for series in found] == ["fedavg", "fedsol"]
    assert [one["round"] for one in found[0]["runs"][0]] == [1, 2]
    assert "orthogonality-rounds.png" in names_in("figures")


def shown_strength(*arguments):
    """The Lambda and the rounds in the data of `--what strength`."""
    done = fedsol("analyze", *arguments, "--what", "strength", "-o", "figures")
    assert done.exit_code == 0, done.output
    runs = [run for series in json.loads(Path("figures/strength.json").read_text()) for run in series["runs"]]
    (strength,) = {run["strength"] for run in runs}
    return strength, [run["round"] for run in runs]


def test_strength_is_shown_by_the_lambda_of_the_runs(unrendered):
    run("fedsol", "--analyze", "strength", "--set", "algorithm.strength=adaptive")
    run("fedavg", "--analyze", "strength")
    # A written row is of round 2; what it does not hold is computed from round 3, trained again.
    assert shown_strength("fedsol") == ("adaptive", [2])
    assert shown_strength("fedavg") == ("adaptive-column", [2])
    assert shown_strength("fedavg", "fedsol") == ("adaptive", [3, 2])
    assert shown_strength("fedsol", "--strength", "adaptive-column") == ("adaptive-column", [3])


def test_runs_of_which_some_wrote_no_rows_are_compared(unrendered):
    run("scaffold")
    run("fedbabu", "--analyze", "orthogonality,strength", "--set", "data.partition.held_out=0.2")
    what = ["--what", "curves,orthogonality,divergence,preservation,strength"]
    done = fedsol("analyze", "scaffold", "fedbabu", *what, "-o", "figures")
    assert done.exit_code == 0, done.output
    assert {"orthogonality.png", "orthogonality-rounds.png", "forgetting.pdf"} <= set(names_in("figures"))


def test_data_that_only_nodes_have_cannot_be_trained_on_again():
    run("fedavg")
    file = Path("fedavg/experiment.toml")
    private = '[data]\nname = "private"\n[data.private]\nshape = [1, 8, 8]\nclasses = 10\n'
    file.write_text(file.read_text().partition("[data]")[0] + private + "[data.partition]\nclients = 8\n")
    rows = [json.loads(line) for line in Path("fedavg/metrics.jsonl").read_text().splitlines()]
    rows = [{**row, "test_accuracy": None, "class_accuracy": None, "held_out_accuracy": 0.5} for row in rows]
    Path("fedavg/metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = fedsol("analyze", "fedavg")
    assert done.exit_code == 2
    assert "only the nodes of that deployment have; allowed: --what curves,cost,toy" in done.output
    assert not Path("fedavg/analysis").exists()
    done = fedsol("analyze", "fedavg", "--what", "curves")
    assert done.exit_code == 0, done.output
    assert json.loads(Path("fedavg/analysis/curves.json").read_text())[0]["values"] == [[0.5, 0.5]]


def test_a_folder_of_runs_is_grouped_by_seed():
    assert fedsol("compare", "-a", "fedavg,fedsol", "--seeds", "0,1", *TINY, "--out", "cmp").exit_code == 0
    done = fedsol("analyze", "cmp", "--what", "curves,strength", "--out", "figures")
    assert done.exit_code == 0, done.output
    found = json.loads(Path("figures/curves.json").read_text())
    assert [(curve["label"], len(curve["values"])) for curve in found] == [("fedavg", 2), ("fedsol", 2)]


def test_toy_and_cost_need_no_run():
    done = fedsol("analyze", "--what", "toy,cost", "--repetitions", "1", "-a", "fedavg,fedsol:perturb=all", "-o", "out")
    assert done.exit_code == 0, done.output
    methods = json.loads(Path("out/cost.json").read_text())["methods"]
    assert [row["method"] for row in methods] == ["fedavg", "fedsol:perturb=all"]
    done = fedsol("analyze", "mnist", "--what", "cost", "--set", "model.name=mlp", "--repetitions", "1", "-o", "out")
    assert done.exit_code == 0, done.output
    assert json.loads(Path("out/cost.json").read_text())["model"] == "mlp"


BAD = {
    "no run": (["--what", "divergence"], ["RUN: is missing", "divergence"]),
    "no run for all": ([], ["RUN: is missing"]),
    "unknown analysis": (["--what", "divergense"], ["--what: unknown value 'divergense'", "'divergence'"]),
    "empty": (["--what", ","], ["--what: is empty"]),
    "no such run": (["nowhere", "--what", "curves"], ["nowhere: no such directory"]),
    "no such experiment": (["nowhere", "--what", "cost"], ["nowhere"]),
    "unknown part": (["--what", "toy", "--where", "tail"], ["--where: unknown value 'tail'", "head"]),
    "unknown strength": (
        ["--what", "toy", "--strength", "weak"],
        ["--strength: unknown value 'weak'", "adaptive-column"],
    ),
    "rho is a word": (["--what", "toy", "--rho", "much"], ["--rho: must be numbers", "'much'"]),
    "client is a word": (["--what", "toy", "--clients", "me"], ["--clients: must be whole numbers", "'me'"]),
    "no repetitions": (["--what", "cost", "--repetitions", "0"], ["--repetitions: must be 1 or more (got 0)"]),
    "bad setting": (["--what", "cost", "--set", "model.name=resnet19"], ["resnet19"]),
    "bad method": (["--what", "cost", "-a", "fedsool"], ["fedsool"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_message(case):
    arguments, parts = BAD[case]
    done = fedsol("analyze", *arguments)
    assert done.exit_code == 2, done.output
    assert len(done.output.strip().splitlines()) == 1, done.output
    for part in parts:
        assert part in done.output
    assert not any(Path.cwd().iterdir()), "something was left behind"


def test_bad_input_about_a_run_leaves_nothing_behind():
    run("fedavg")
    before = names_in("fedavg")
    for arguments, part in (
        (["--what", "curves,orthogonality", "--rho", "1"], "perturbs nothing"),
        (["--what", "curves,divergence", "--clients", "8"], "--clients: must be 0 to 7 (got 8)"),
        (["--what", "curves,landscape", "--points", "1"], "--points: must be 3 or more (got 1)"),
        (["--what", "landscape", "--radius", "-1"], "--radius: must be greater than 0 and finite (got -1.0)"),
        (["--what", "curves", "--set", "rounds=3"], "--set: is not allowed with a run"),
    ):
        done = fedsol("analyze", "fedavg", *arguments)
        assert done.exit_code == 2, done.output
        assert part in done.output
    assert names_in("fedavg") == before
    run("fedsol")
    done = fedsol("analyze", "fedavg", "fedsol", "--what", "orthogonality", "--rho", "1", "-o", "out")
    assert done.exit_code == 2
    assert "runs of several methods" in done.output
    assert not Path("out").exists()


def test_run_refuses_an_unknown_analysis_before_it_begins():
    for arguments, part in (
        (["--analyze", "divergense"], "--analyze: unknown value 'divergense'"),
        (["--analyze", "orthogonality", "--set", "algorithm.name=moon"], "orthogonality is not allowed for moon"),
    ):
        done = fedsol("run", *TINY, "--out", "out", *arguments)
        assert done.exit_code == 2
        assert part in done.output
        assert not any(Path.cwd().iterdir())


def test_a_sweep_makes_a_table_and_a_picture():
    arguments = ["sweep", *TINY, "--grid", "algorithm.rho=0.5,1", "--seeds", "0,1", "--out", "out"]
    done = fedsol(*arguments)
    assert done.exit_code == 0, done.output
    assert "[4/4]" in done.output
    assert "±" in done.output
    for name in ("sweep.png", "sweep.pdf", "sweep.csv", "sweep.json"):
        assert (Path("out") / name).stat().st_size > 50
    assert fedsol(*arguments).exit_code == 2
    assert fedsol(*arguments, "--resume").exit_code == 0


def test_a_search_says_what_was_best():
    done = fedsol(
        "sweep", *TINY, "--grid", "algorithm.rho=0.1..2", "--search", "2", "--seeds", "0", "--out", "out", "--jobs", "1"
    )
    assert done.exit_code == 0, done.output
    assert "Best by the final result on the test set: algorithm.rho=" in done.output


def test_a_search_with_validation_optimizes_that():
    validation = ["--set", "data.validation=0.2", "--set", "server.patience=1"]
    grid = ["--grid", "client.lr=0.0001,0.05", "--search", "3", "--seeds", "0,1", "--jobs", "1"]
    done = fedsol("sweep", *TINY, *validation, *grid, "--out", "out")
    assert done.exit_code == 0, done.output
    assert "test accuracy, mean ± std over seeds; best: of the round chosen by validation" in done.output
    assert "Best by validation: client.lr=" in done.output
    rows = json.loads(Path("out/sweep.json").read_text())
    scores = {row["label"]: row["best_validation"]["mean"] for row in rows}
    assert f"Best by validation: {max(scores, key=scores.__getitem__)}" in done.output
    header, first, *_ = Path("out/sweep.csv").read_text().splitlines()
    assert header.split(",")[-4:] == ["validation_mean", "validation_std", "seconds", "failures"]
    assert first.split(",")[-4] == f"{rows[0]['best_validation']['mean']:.6f}"


def test_a_sweep_with_a_failed_run_ends_with_1_and_its_table():
    grid = ["--grid", "algorithm.factor=3.0,1.0", "--set", "algorithm.name=tests.support.user_code:FailsAbove"]
    done = fedsol("sweep", *TINY, *grid, "--seeds", "0", "--out", "out")
    assert done.exit_code == 1, done.output
    assert "algorithm.factor=3 seed 0: the global model has values that are not finite" in done.output
    assert Path("out/sweep.png").is_file()


SWEEP_BAD = {
    "no grid": ([], "--grid: is missing"),
    "bad grid": (["--grid", "rho"], "--grid 'rho'"),
    "unknown key": (["--grid", "algorithm.rhoo=1,2"], "'rho'"),
    "bad value": (["--grid", "client.lr=0.1,-1"], "client.lr: must be greater than 0 (got -1)"),
    "bad seeds": (
        ["--grid", "client.lr=0.1", "--seeds", "x"],
        "--seeds: must be whole numbers such as 0,1,2 (got 'x')",
    ),
    "no jobs": (["--grid", "client.lr=0.1", "--jobs", "0"], "Invalid value for '--jobs': 0"),
    "a range without search": (["--grid", "client.lr=0.1..1"], "--search N"),
    "no trials": (["--grid", "client.lr=0.1..1", "--search", "0"], "Invalid value for '--search': 0"),
}


@pytest.mark.parametrize("case", SWEEP_BAD)
def test_bad_sweeps_are_one_clear_message(case):
    arguments, part = SWEEP_BAD[case]
    done = fedsol("sweep", *TINY, *arguments, "--out", "out")
    assert done.exit_code == 2, done.output
    assert "Invalid value" in part or len(done.output.strip().splitlines()) == 1, done.output
    assert part in done.output
    assert not any(Path.cwd().iterdir()), "something was left behind"
