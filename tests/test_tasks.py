"""Every kind of task end to end: the examples on real data, every engine, resumed runs, and the methods."""

import json
import math
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import fedsol
from fedsol import Experiment
from fedsol.config.algorithm import find_algorithm
from fedsol.config.catalog import ALGORITHMS
from fedsol.config.task import DEFAULT_METRICS, KINDS, LOSSES, MEASURES
from fedsol.core.weights import subtract
from fedsol.federation.federation import build_federation
from tests.support.cli import fedsol as command
from tests.support.runs import StopAfter, assert_same_run, trained

HAS_TRANSFORMERS = pytest.mark.skipif(find_spec("transformers") is None, reason="pip install 'fedsol[text]'")
TASKS = [
    *("regression", "table", "multilabel", "segmentation", "next_token"),
    pytest.param("transformer", marks=HAS_TRANSFORMERS),
]
every_task = pytest.mark.parametrize("task", TASKS)
OTHERS = ["fednova", "feddyn", "fedasam", "fedntd", "moon", "fedsol-ablation", "perfedavg", "fedbabu", "knn-per"]
METHODS = [
    {"name": "fedavg"},
    {"name": "fedprox", "mu": 0.5},
    {"name": "scaffold"},
    {"name": "fedsam"},
    {"name": "fedsol", "perturb": "head"},
    {"name": "fedsol", "perturb": "all"},
]


@pytest.fixture(scope="module", autouse=True)
def examples(tmp_path_factory):
    """A folder with a copy of the examples and the table that they write, to run them from."""
    folder = tmp_path_factory.mktemp("tasks")
    shutil.copytree(Path(__file__).parents[1] / "examples" / "tasks", folder / "examples" / "tasks")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        data = fedsol.core.imports.import_object("examples/tasks/data.py:write_breast_cancer", "data.name")
        data("examples/tasks/breast_cancer.csv")
        yield folder


def example(task, **changes):
    """An example, cut down: two rounds of one epoch on a fifth of the data, with hold-out sets."""
    small = {
        "rounds": 2,
        "data.part": 0.2,
        "data.partition.held_out": 0.25,
        "client.epochs": 1,
        "client.batch_size": 10,
        "client.optimizer": "sgd",
        "server.fraction": 0.7,
        "engine.kind": "local",
    }
    changes = {key.replace("__", "."): value for key, value in changes.items()}
    return Experiment.load(f"examples/tasks/{task}.toml").override({**small, **changes})


GUESSING = {
    "regression": ("r2", 0.0),  # the mean of the targets
    "table": ("auroc", 0.5),
    "multilabel": ("auroc", 0.5),
    "segmentation": ("iou", 0.68 / 3),  # background everywhere: most of one class, nothing of two
    "next_token": ("perplexity", 60.0),  # every character that occurs, alike
    "transformer": ("auroc", 0.5),
}


@pytest.mark.parametrize("task", [task for task in TASKS if task != "table"])  # whose class weights are refused
def test_samples_of_every_task_can_be_protected(task):
    private = {"privacy__level": "example", "privacy__noise_multiplier": 1.0}
    run = trained(example(task, algorithm__name="fedavg", rounds=1, **private))
    assert 0 < run.rows[0]["epsilon"] < 30
    assert math.isfinite(run.rows[0]["test_loss"])


@every_task
def test_an_example_is_better_than_guessing(task, tmp_path):
    quick = [part for change in ("rounds=3", "client.epochs=2", "engine.kind=local") for part in ("--set", change)]
    done = command("run", f"examples/tasks/{task}.toml", *quick, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    run = fedsol.Run.load(tmp_path / "run")
    primary, guess = GUESSING[task]
    measure = run.experiment.task.primary
    assert measure.key == primary
    assert measure.better(rows[-1][f"test_{primary}"], guess)
    assert all(f"test_{one.key}" in rows[-1] for one in run.experiment.task.measures)


def test_the_guesses_are_those_of_the_data():
    labels = build_federation(example("segmentation", data__part=1.0)).dataset.test.labels.numpy()
    assert (labels == 0).mean() == pytest.approx(0.68, abs=0.01)
    tokens = build_federation(example("next_token", data__part=1.0)).dataset.test.labels.numpy()
    assert len(np.unique(tokens)) > 60


@every_task
@pytest.mark.parametrize("method", METHODS, ids=lambda method: "-".join(map(str, method.values())))
def test_every_method_trains_every_task(task, method):
    settings = example(task, algorithm=method, rounds=1)
    run = trained(settings)
    (row,) = run.rows
    assert row["rejected"] == 0
    assert math.isfinite(row["test_loss"])
    assert math.isfinite(row[f"test_{settings.task.primary.key}"])
    moved = subtract(run.weights, build_federation(settings).initial_weights())
    assert any(tensor.any() for tensor in moved.values())
    if method["name"] not in ("fedavg", "scaffold"):  # SCAFFOLD's first round is FedAvg's
        plain = trained(example(task, algorithm={"name": "fedavg"}, rounds=1))
        assert any(tensor.any() for tensor in subtract(run.weights, plain.weights).values())


@every_task
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.full) for name in [*OTHERS, "local-only"]])
def test_every_other_method_trains_the_tasks_that_it_fits_and_refuses_the_rest(task, name):
    changes = {"rounds": 1, "algorithm": {"name": name}}
    kind = Experiment.load(f"examples/tasks/{task}.toml").task.kind
    if kind in find_algorithm(name).tasks:
        assert math.isfinite(trained(example(task, **changes)).rows[0]["test_loss"])
        return
    with pytest.raises(fedsol.InputError, match=f"algorithm.name: '{name}' does not fit task.kind = '{kind}'; it fits"):
        example(task, **changes)


@every_task
@pytest.mark.parametrize("name", ["fedsol", pytest.param("scaffold", marks=pytest.mark.full)])
def test_workers_are_bitwise_the_in_process_engine(task, name):
    settings = example(task, algorithm={"name": name})
    assert_same_run(fedsol.train(settings.override({"engine.kind": "workers", "engine.workers": 2})), trained(settings))


@every_task
def test_flower_messages_are_bitwise_the_in_process_engine(task):
    pytest.importorskip("flwr")
    from tests.support.fake_grid import simulated

    settings = example(task, algorithm={"name": "fedsol"})
    assert_same_run(simulated(settings)[0], trained(settings))


@pytest.mark.full
@every_task
def test_flowers_simulation_is_bitwise_the_in_process_engine(task, examples, tmp_path):
    pytest.importorskip("ray", reason="Flower's simulation runs on Ray")
    settings = example(task, algorithm={"name": "fedsol"})
    (tmp_path / "small.toml").write_text(settings.to_toml())
    patient = ["--set", "engine.patience=600"]  # a busy machine may take minutes to start the nodes
    run = ["run", tmp_path / "small.toml", "--set", "engine.kind=flower", *patient, "--out", tmp_path / "run"]
    done = subprocess.run([sys.executable, "-m", "fedsol", *run], cwd=examples, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert_same_run(fedsol.Run.load(tmp_path / "run"), trained(settings))


@every_task
def test_a_resumed_run_is_bitwise_the_whole_one(task, tmp_path):
    settings = example(task, algorithm={"name": "fedsol"})
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(settings, [StopAfter(1)], tmp_path)
    assert_same_run(fedsol.train(settings, out=tmp_path, resume=True), trained(settings))


def coded():
    """A table whose categories are codes already."""
    numbers, codes = np.linspace(-1, 1, 40).reshape(20, 2), np.arange(40).reshape(20, 2) % (5, 3)
    x = {"numbers": numbers, "categories": codes.astype(np.int64)}
    return {"x_train": x, "y_train": np.arange(20) % 2, "x_test": x, "y_test": np.arange(20) % 2}


def test_a_table_of_codes_without_columns(tmp_path):
    changes = {"data.name": f"{__name__}:coded", "data.partition": {"kind": "iid", "clients": 2}}
    run = fedsol.train(Experiment(rounds=1).override(changes), out=tmp_path)
    assert run.experiment.model.name == "tabular"
    again = fedsol.Run.load(tmp_path)
    assert [embedding.num_embeddings for embedding in again.model().embeddings] == [5, 3]
    assert again.predict(coded()["x_test"]).labels.tolist() == run.predict(coded()["x_test"]).labels.tolist()


def test_masks_do_not_move_with_their_images():
    message = "data.augmentation: pad and flip must not be set for segmentation: labels would not follow"
    with pytest.raises(fedsol.InputError, match=message):
        build_federation(example("segmentation", data__augmentation={"flip": True}))


@pytest.mark.parametrize(
    ("task", "model", "message"),
    [
        ("regression", "unet", "model.name: 'unet' gives one answer per pixel, and the task takes one per sample; all"),
        ("table", "mlp", "model.name: 'mlp' must have numbers or images (got a table with categories); allowed here: "),
        ("next_token", "cnn", "model.name: 'cnn' gives one answer per sample, and the task takes one per token; allow"),
        ("segmentation", "small", "model.name: 'small' gives one answer per sample, and the task takes one per pixel;"),
    ],
)
def test_a_model_for_another_task_is_refused(task, model, message):
    done = command("run", f"examples/tasks/{task}.toml", "--set", f"model.name={model}", "--set", "model.options={}")
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("task", "algorithm", "warned"),
    [
        ("regression", {}, True),
        ("regression", {"rho": 0.2}, False),
        ("regression", {"strength": "adaptive"}, False),
        ("table", {}, False),
    ],
)
def test_a_perturbation_that_outweighs_a_single_output_is_warned_of(task, algorithm, warned, caplog):
    build_federation(example(task, algorithm={"name": "fedsol", **algorithm}))
    assert ("algorithm.rho: the model has one output, so" in caplog.text) is warned


def test_what_compares_classes_refuses_other_tasks_by_name(tmp_path):
    trained = command("run", "examples/tasks/regression.toml", "--set", "rounds=1", "--out", tmp_path / "run")
    assert trained.exit_code == 0, trained.output
    personal = command("personalize", tmp_path / "run")
    assert (personal.exit_code, "task.kind: personal models are for classification" in personal.output) == (2, True)
    analysis = command("analyze", tmp_path / "run", "--what", "preservation")
    assert (analysis.exit_code, "preservation: compares classes of samples" in analysis.output) == (2, True)
    assert command("analyze", tmp_path / "run", "--what", "curves,divergence").exit_code == 0


PAGE = (Path(__file__).parents[1] / "docs" / "tasks.md").read_text(encoding="utf-8")


def test_the_page_shows_every_loss_metric_and_method():
    for kind in KINDS:
        losses, metrics = re.search(
            rf"^\| `{kind}` \| (`[a-z-]+`[^|]*) \| (\*\*[^|]*) \|$", PAGE, re.MULTILINE
        ).groups()
        assert tuple(re.findall("`(.*?)`", losses)) == LOSSES[kind]
        assert {*re.findall("`(.*?)`", metrics)} == {name for name, one in MEASURES.items() if kind in one.kinds}
        assert tuple(re.findall(r"\*\*`(.*?)`", metrics)) == DEFAULT_METRICS[kind]
    for name in ALGORITHMS:
        (row,) = re.findall(rf"^\| .*`{name}`[^|]*\| ([^|]*) \|$", PAGE.split("| methods |")[1], re.MULTILINE)[:1]
        kinds = KINDS if row == "all" else tuple(re.findall("`(.*?)`", row))
        assert find_algorithm(name).tasks == kinds, name


def test_the_pages_own_loss_and_metric_work(examples):
    (code,), (table,) = (re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) for kind in ("python", "toml"))
    (examples / "mine.py").write_text(code)
    (examples / "mine.toml").write_text(f"rounds = 3\n{table}")
    done = command("run", "mine.toml", "--set", "engine.kind=local", "--set", "client.lr=0.01", "--out", "mine")
    assert done.exit_code == 0, done.output
    last = fedsol.Run.load("mine").rows[-1]
    assert 0 < last["test_within_50"] < 1
    assert last["test_r2"] > -1
