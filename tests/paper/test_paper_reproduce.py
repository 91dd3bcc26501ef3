"""fedsol reproduce, from the command line: resuming, reusing, labeling and refusing."""

import json
import re
import shutil
from pathlib import Path

import pytest

from fedsol.errors import RunError
from fedsol.paper import registry
from fedsol.paper.numbers import Heading
from fedsol.paper.recipe import Accuracy, Ours, TrainedTable
from fedsol.paper.reproduce import Reproduction
from fedsol.paper.settings import METHODS, experiment
from fedsol.runs.directory import RunDirectory
from fedsol.runs.run import Run
from tests.support.small_recipe import fedsol, know, runs_in, small, small_cells

pytestmark = pytest.mark.usefixtures("small_recipe")


def test_the_list_names_every_recipe():
    done = fedsol("reproduce", "list")
    assert done.exit_code == 0, done.output
    for name in registry.RECIPES.keys() - {"small"}:  # which only these tests have
        assert name in done.output


def test_a_whole_table():
    done = fedsol("reproduce", "small")
    assert done.exit_code == 0, done.output
    assert runs_in() == [
        f"digits-dirichlet-0.1-small/{name}/seed-{seed}" for name in ("fedavg", "fedprox") for seed in (0, 1, 2)
    ]
    content = json.loads(Path("runs/paper/small.json").read_text())
    assert content["partial"] is False
    first, again, failed, extra = content["cells"]
    values = [100 * Run.load(path).final_accuracy for path in first["runs"]]
    assert first["ours"]["mean"] == pytest.approx(sum(values) / 3)
    assert first["difference"] == pytest.approx(first["ours"]["mean"] - 50.0)
    assert again["ours"] == first["ours"]
    assert failed["paper"]["failed"] is True
    assert extra["ours"] is None
    page = Path("runs/paper/small.md").read_text()
    assert page.startswith("# small: A small table\n")
    line = next(line for line in page.splitlines() if line.startswith("| FedAvg"))
    spread = f"{first['ours']['mean']:.2f} ± {first['ours']['std']:.2f}"
    assert line.startswith(f"| FedAvg | 50.00 ± 1.00 | {spread} | {first['difference']:+.2f} | 50.00 | {spread}")
    assert "10.00 (failed)" in page
    assert "PARTIAL" not in done.output
    assert "FedSAM" not in page


def test_finished_cells_are_skipped_and_a_killed_one_goes_on(monkeypatch):
    assert fedsol("reproduce", "small", "--seeds", "0", "--only", "method=fedavg").exit_code == 0
    rows = Path("runs/paper/digits-dirichlet-0.1-small/fedavg/seed-0/metrics.jsonl")
    before = rows.read_bytes()
    stopped = Path("runs/paper/digits-dirichlet-0.1-small/fedprox/seed-0")

    class KilledError(BaseException):
        """Like a signal: no error of anybody's code."""

    class Killed:
        def __getattr__(self, event):
            def tell(*arguments):
                if event == "round_finished" and arguments[0].round == 2:
                    raise KilledError

            return tell

    with monkeypatch.context() as patch:
        patch.setattr("fedsol.training.progress.progress", lambda *arguments, **options: Killed())
        with pytest.raises(KilledError):
            fedsol("reproduce", "small", "--seeds", "0")
    assert len((stopped / "metrics.jsonl").read_text().splitlines()) == 2
    done = fedsol("reproduce", "small", "--seeds", "0")
    assert done.exit_code == 0, done.output
    assert "resuming after round 2" in done.output
    assert "1/1 FedProx" in done.output
    assert rows.read_bytes() == before
    assert len((stopped / "metrics.jsonl").read_text().splitlines()) == 3
    resumed = {path.suffix: path.read_bytes() for path in Path("runs/paper").glob("small.*")}
    shutil.rmtree("runs")
    assert fedsol("reproduce", "small", "--seeds", "0").exit_code == 0
    assert {path.suffix: path.read_bytes() for path in Path("runs/paper").glob("small.*")} == resumed
    assert set(resumed) == {".md", ".json"}


def test_runs_side_by_side_give_the_same_table():
    assert fedsol("reproduce", "small", "--seeds", "0,1", "--out", "one").exit_code == 0
    done = fedsol("reproduce", "small", "--seeds", "0,1", "--out", "two", "--jobs", "2")
    assert done.exit_code == 0, done.output
    assert "4/4 " in done.output
    assert Path("one/small.md").read_text() == Path("two/small.md").read_text()


def test_finished_runs_are_read_once(monkeypatch):
    assert fedsol("reproduce", "small", "--seeds", "0", "--only", "method=fedavg").exit_code == 0
    read = []
    read_rows = RunDirectory.read_rows
    monkeypatch.setattr(
        RunDirectory, "read_rows", lambda files: read.append(files.path.parent.name) or read_rows(files)
    )
    assert fedsol("reproduce", "small", "--seeds", "0,1").exit_code == 0
    assert sorted(read) == ["fedavg", "fedavg", "fedprox", "fedprox"]


def test_one_recipe_is_made_without_the_others(monkeypatch):
    def refuse():
        raise AssertionError("another recipe was made")

    for name in set(registry.RECIPES) - {"toy"}:
        monkeypatch.setitem(registry.RECIPES, name, refuse)
    assert fedsol("reproduce", "toy").exit_code == 0


def test_partial_runs_say_so():
    done = fedsol("reproduce", "small", "--seeds", "1", "--rounds", "1", "--part", "0.5", "--only", "method=fedavg")
    assert done.exit_code == 0, done.output
    assert "small (PARTIAL): A small table" in done.output
    label = "[a] differs from the paper: 1 of 3 rounds; 1 of 3 seeds; 50 % of every client's data and of the test set"
    assert label in done.output
    assert label in Path("runs/paper/small.md").read_text()
    assert "1 of the paper's 3 cells are not run (blank)" in done.output
    assert re.search(r"\| FedProx \| 10\.00 \(failed\) \|  \|  \|", Path("runs/paper/small.md").read_text())
    assert runs_in() == ["digits-dirichlet-0.1-small-part-0.5/fedavg+rounds=1/seed-1"]


def test_other_settings_are_labeled_and_do_not_mix_with_the_papers():
    assert fedsol("reproduce", "small", "--seeds", "0", "--only", "method=fedavg").exit_code == 0
    options = ["--seeds", "0", "--only", "method=fedavg", "--set", "client.lr=0.1"]
    done = fedsol("reproduce", "small", *options)
    assert done.exit_code == 0, done.output
    assert "client.lr 0.1 instead of 0.01" in done.output
    assert runs_in() == [f"digits-dirichlet-0.1-small/{name}/seed-0" for name in ("fedavg+lr=0.1", "fedavg")]


def test_extra_rows_are_run_when_they_are_named():
    done = fedsol("reproduce", "small", "--seeds", "0", "--only", "method=fedsam")
    assert done.exit_code == 0, done.output
    assert runs_in() == ["digits-dirichlet-0.1-small/fedsam/seed-0"]
    assert "FedSAM" in done.output


def test_a_run_with_an_equal_experiment_is_used_whatever_it_is_called():
    run = fedsol(
        "run",
        "digits",
        "--set",
        "rounds=3",
        "--set",
        "data.partition.clients=6",
        "--set",
        "algorithm.name=fedavg",
        "--set",
        "client.epochs=1",
        "--set",
        "server.fraction=0.5",
        "--out",
        "runs/paper/mine",
    )
    assert run.exit_code == 0, run.output
    done = fedsol("reproduce", "small", "--seeds", "0", "--only", "method=fedavg")
    assert done.exit_code == 0, done.output
    assert runs_in() == ["mine"]
    assert json.loads(Path("runs/paper/small.json").read_text())["cells"][0]["runs"] == ["runs/paper/mine"]


def test_a_failing_run_does_not_keep_the_others_from_being_made(monkeypatch):
    from fedsol.studies import run_many

    train = run_many.train

    def diverges(experiment, *arguments, **options):
        if experiment.algorithm["name"] == "fedavg":
            raise RunError("the test loss is not finite")
        return train(experiment, *arguments, **options)

    monkeypatch.setattr(run_many, "train", diverges)
    done = fedsol("reproduce", "small", "--seeds", "0")
    assert done.exit_code == 1
    assert "error: FedAvg, first, seed 0: the test loss is not finite" in done.output
    assert runs_in() == ["digits-dirichlet-0.1-small/fedprox/seed-0"]


def test_a_recipe_may_say_what_a_run_is_worth(monkeypatch):
    asked = []

    class Counted(Accuracy):
        def number(self, cell, runs, console):
            asked.append(cell.key)
            return Ours(float(len(runs)))

    know(monkeypatch, TrainedTable(Heading("valued", "Valued", "tab:small"), small_cells(), evaluation=Counted()))
    done = fedsol("reproduce", "valued", "--seeds", "0,1", "--only", "method=fedavg")
    assert done.exit_code == 0, done.output
    assert json.loads(Path("runs/paper/valued.json").read_text())["cells"][0]["ours"]["mean"] == 2.0
    assert set(asked) == {("", "FedAvg", "first"), ("", "FedAvg", "again")}
    assert len(asked) == 4  # after the first seed and after the second, however often the table is written


def test_rejected_updates_are_told():
    done = fedsol("reproduce", "small", "--seeds", "0", "--only", "method=fedavg", "--set", "client.lr=1e30")
    assert "9 updates rejected as invalid" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["smal"], "did you mean 'small'"),
        (["small", "--only", "method=fedavg", "--set", "seed=3"], "--set seed: is not allowed"),
        (["small", "--rounds", "0"], "rounds: must be greater than or equal to 1 (got 0)"),
        (["small", "--part", "1.5"], "data.part: must be less than or equal to 1 (got 1.5)"),
        (["small", "--part", "0.5", "--set", "data.part=0.1"], "--set data.part: is not allowed together with --part"),
        (["small", "--rounds", "1", "--set", "rounds=2"], "--set rounds: is not allowed together with --rounds"),
        (["small", "--set", "algorithm.rho=1"], "(in FedAvg, first)"),
        (["small", "--seeds", "a"], "--seeds: must be whole numbers"),
        (["small", "--set", "client.epohcs=1"], "did you mean 'epochs'"),
        (["main", "--only", "alpha=0.1,s=2"], "selects no cell of main"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(arguments, message):
    done = fedsol("reproduce", *arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert not Path("runs").exists()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_place_that_cannot_hold_runs_is_refused_first(place):
    Path("file").touch()
    for recipe in ("small", "toy"):
        done = fedsol("reproduce", recipe, "--out", place)
        assert done.exit_code == 2
        assert f"{place}: cannot be used as a directory" in done.output


def test_missing_data_is_named_before_anything_runs():
    done = fedsol("reproduce", "larger-datasets", "--data-root", "elsewhere")
    assert done.exit_code == 2
    assert "cifar100: elsewhere/cifar100/cifar-100-binary.tar.gz is missing" in done.output
    assert "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz" in done.output
    assert "fedsol data fetch cifar100 --root elsewhere" in done.output
    assert "imagenet100: elsewhere/imagenet100/train is missing" in done.output
    assert "elsewhere/imagenet100: ImageNet may not be redistributed" in done.output
    assert not Path("runs").exists()


def test_what_is_at_hand_is_said(monkeypatch):
    monkeypatch.setattr(
        "fedsol.paper.selection.missing_files", lambda name, root: [f"{name}: gone"] if name == "svhn" else []
    )
    done = fedsol("reproduce", "combinations")
    assert done.exit_code == 2
    assert "svhn: gone" in done.output
    assert "Available: cifar10, cinic10: --only 'dataset=cifar10|cinic10'" in done.output


def test_an_estimate_runs_nothing():
    done = fedsol("reproduce", "small", "--estimate", "--seeds", "0,1")
    assert done.exit_code == 0, done.output
    assert "small on digits, fedavg:" in done.output
    assert "4 runs, 4 still to run: about" in done.output
    assert not Path("runs").exists()


def test_estimates_count_samples_and_tests(monkeypatch):
    from fedsol.paper import estimate
    from fedsol.studies.estimate import Speed

    asked = []

    def time_trial(trial):
        asked.append(trial.experiment.algorithm["name"])
        return Speed(sample=0.5, update=0.0, test=0.01, spread=0.0)

    monkeypatch.setattr(estimate, "time_trial", time_trial)
    runs = [small(name).override({"data.partition.kind": "iid"}) for name in ("fedsam", "fedavg")]
    runs += [runs[0].override({"algorithm.rho": 0.5}), runs[0].override({"algorithm.rho": 0.0, "rounds": 6})]
    # 1,437 digits: 6 clients of 239 or 240; 3 are sampled; 360 test images; 3 rounds.
    whole = 3 * (3 * 1437 / 6 * 0.5 + 360 * 0.01)
    assert estimate.estimate(runs) == pytest.approx([whole, whole, whole, 2 * whole])
    assert asked == ["fedsam", "fedavg", "fedsam"]  # another rho takes as long; with 0 it may not


def test_estimates_without_data_know_its_part(tmp_path):
    from fedsol.studies.plan import make_plans
    from fedsol.studies.variants import Variant

    run = experiment("cifar10", "alpha = 0.1", METHODS["FedAvg"], changes={"data.root": str(tmp_path)})
    whole, part = make_plans([Variant("", run), Variant("", run.override({"data.part": 0.01}))])
    assert (whole.sizes.sum(), len(whole.dataset.test)) == (50_000, 10_000)
    assert part.sizes.tolist() == [max(1, round(0.01 * size)) for size in whole.sizes]
    assert len(part.dataset.test) == 100


def test_options_of_runs_have_no_effect_where_nothing_is_trained():
    done = fedsol("reproduce", "scenarios", "--rounds", "1", "--seeds", "0")
    assert done.exit_code == 0, done.output
    assert "Nothing is trained here; these options have no effect: --rounds, --seeds." in done.output
    estimated = fedsol("reproduce", "scenarios", "--estimate")
    assert "Nothing is trained here" in estimated.output


def test_settings_are_shown_without_a_run():
    done = fedsol("reproduce", "hyperparameters")
    assert done.exit_code == 0, done.output
    assert "hyperparameters: Selected hyperparameters" in done.output
    assert runs_in() == []


def test_only_the_chosen_columns_are_shown_but_all_are_written():
    done = fedsol("reproduce", "scenarios", "--only", "setting=rounds,dataset=svhn")
    assert done.exit_code == 0, done.output
    assert "clients" not in done.output.partition("Ours is the default")[0].partition("\n")[2]
    written = Path("runs/paper/scenarios.md").read_text()
    assert "clients: paper" in written
    assert "| SVHN | 100 |  |  | 200 | 200 | +0 |" in written


def test_ctrl_c_says_how_to_resume(monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Reproduction, "show", interrupt)
    done = fedsol("reproduce", "small", "--seeds", "0", "--only", "method=fedavg")
    assert done.exit_code == 130
    assert "Saved in runs/paper. Resume with the same command." in done.output
