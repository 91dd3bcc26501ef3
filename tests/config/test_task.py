"""`[task]`: names that exist and fit, the primary metric, and methods that do not fit a task."""

import pytest

from fedsol.analysis import check_task
from fedsol.config.experiment import Experiment
from fedsol.config.task import ACCURACY, DEFAULT_METRICS, KINDS, LOSSES, MEASURES, primary_of
from fedsol.errors import InputError


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_defaults_that_fit_it(kind):
    task = Experiment(task={"kind": kind}).task
    assert [measure.name for measure in task.measures] == list(DEFAULT_METRICS[kind])
    assert all(kind in measure.kinds for measure in task.measures)
    assert LOSSES[kind]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"kind": "regresion"}, "task.kind: must be 'classification', 'multilabel', 'regression'"),
        ({"metrics": ["acuracy"]}, "task.metrics: unknown value 'acuracy'; did you mean 'accuracy'?"),
        (
            {"metrics": ["rmse"]},
            "task.metrics: 'rmse' does not fit classification, but regression; allowed: ",
        ),
        ({"kind": "regression", "metrics": ["accuracy"]}, "'accuracy' does not fit regression, but classification"),
        ({"metrics": ["confusion"]}, "the first is the primary one and must be a number"),
        ({"loss": "mse"}, "task.loss: unknown value 'mse' for classification; allowed: cross-entropy, focal"),
        ({"kind": "regression", "class_weights": "balanced"}, "task.class_weights: must not be set for regression"),
        ({"class_weights": "even"}, "must be 'balanced' or a list with a positive number for each class (got 'even')"),
        ({"class_weights": [1.0, float("inf")]}, "or a list with a positive number for each class (got [1.0, inf])"),
        ({"class_weights": [1.0, 0.0]}, "or a list with a positive number for each class (got [1.0, 0.0])"),
        ({"metrics": ["auroc", "auroc"]}, "task.metrics: must have different names (got 'auroc' twice)"),
        ({"metrics": ["a:cost", "b:cost"]}, "task.metrics: must have different names (got 'cost' twice)"),
        (
            {"metrics": ["a:loss"]},
            "task.metrics: 'a:loss' must have another name: there is a column for 'loss' already",
        ),
        ({"metrics": ["a:macro_f1"]}, "there is a column for 'macro_f1' already"),
    ],
)
def test_a_wrong_name_is_one_message(task, message):
    with pytest.raises(InputError) as error:
        Experiment(task=task)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("algorithm", "kind", "message"),
    [
        ({"name": "fedntd"}, "regression", "algorithm.name: 'fedntd' does not fit task.kind = 'regression'; it fits "),
        ({"name": "fedntd"}, "multilabel", "it fits classification, segmentation, next-token"),
        ({"name": "moon"}, "segmentation", "it fits classification, multilabel, regression"),
        ({"name": "knn-per"}, "next-token", "it fits classification"),
        ({"name": "fedsol", "proximal": "not-true-kl"}, "multilabel", "algorithm.proximal: 'not-true-kl' does not fit"),
    ],
)
def test_a_method_that_needs_classes_refuses_other_tasks_by_name(algorithm, kind, message):
    with pytest.raises(InputError) as error:
        Experiment(algorithm=algorithm, task={"kind": kind})
    assert message in str(error.value)


def test_the_partition_follows_the_task_and_stays_what_was_chosen():
    assert Experiment().data.partition.kind == "dirichlet"
    regression = Experiment(task={"kind": "regression"})
    assert regression.data.partition.kind == "iid"
    assert regression.override({"seed": 1}).data.partition.kind == "iid"
    table = {"name": "a.csv", "target": "y", "client": "hospital"}
    assert Experiment(data=table).data.partition.kind == "own"
    by_class = Experiment(data={**table, "partition": {"kind": "dirichlet"}})
    assert by_class.override({"seed": 1}).data.partition.kind == "dirichlet"
    with pytest.raises(InputError, match=r"data.partition.kind: 'dirichlet' splits by the class of a sample, and"):
        Experiment(task={"kind": "regression"}, data={"partition": {"kind": "dirichlet"}})


def test_flipped_labels_need_classes():
    with pytest.raises(InputError, match=r"faults.corruption: 'label-flip' does not fit task.kind = 'regression'"):
        Experiment(task={"kind": "regression"}, faults={"corruption": "label-flip"})


def test_the_primary_metric_is_known_without_checking_anything():
    assert primary_of({}) is ACCURACY
    assert primary_of({"task.kind": "regression"}) is MEASURES["rmse"]
    assert primary_of({"task.kind": "regression", "task.metrics": ["r2", "mae"]}) is MEASURES["r2"]
    assert primary_of({"task.kind": "not a task"}) is ACCURACY
    own = primary_of({"task.metrics": ["somewhere:recall_at_5"]})
    assert (own.key, own.title, own.higher_is_better) == ("recall_at_5", "recall_at_5", True)


def test_values_read_as_people_write_them():
    assert ACCURACY.text(0.12345) == "12.35 %"
    assert ACCURACY.text(None) == "–"
    assert MEASURES["rmse"].text(57.12345) == "57.12"
    assert MEASURES["rmse"].spread_text(57.12345, 1.234) == "57.12 ± 1.2"
    assert MEASURES["rmse"].best([3.0, 2.0]) == 2.0
    assert ACCURACY.best([]) is None


def test_an_analysis_of_classes_refuses_other_tasks():
    check_task(["preservation", "divergence"], "classification")
    with pytest.raises(InputError, match=r"preservation: compares classes of samples, and task.kind is 'regression'"):
        check_task(["divergence", "preservation"], "regression")
