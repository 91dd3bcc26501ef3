"""Targets of each kind of task, from the arrays of a user."""

import numpy as np
import pytest
import torch

from fedsol.config.tables import DataSettings
from fedsol.data.catalog import load_dataset
from fedsol.data.targets import check_targets, make_targets
from fedsol.errors import InputError


def targets(kind, train, test):
    arrays = [check_targets(np.array(part), kind, "own.npz: y") for part in (train, test)]
    return make_targets(*arrays, kind, "own.npz")


def test_classes_are_numbered_in_sorted_order():
    found = targets("classification", [[7], [3], [7]], [3])
    assert (found.train.tolist(), found.test.tolist(), found.size) == ([1, 0, 1], [0], 2)
    assert found.names == ("3", "7")
    assert targets("classification", [0, 1, 2], [1]).names == ()


def test_several_labels():
    found = targets("multilabel", [[0, 1, 1], [1, 0, 0]], [[1.0, 1.0, 0.0]])
    assert (found.train.tolist(), found.size) == ([[0, 1, 1], [1, 0, 0]], 3)
    assert found.test.dtype == torch.float32


def test_real_numbers_are_standardized_by_the_training_targets():
    found = targets("regression", [1.0, 3.0, 5.0], [3.0, 7.0])
    deviation = np.sqrt(8 / 3)  # of 1, 3 and 5
    assert found.mean == (3.0,)
    assert found.std == pytest.approx((deviation,))
    assert found.train[:, 0].tolist() == pytest.approx([-2 / deviation, 0, 2 / deviation])
    assert found.test[:, 0].tolist() == pytest.approx([0, 4 / deviation])
    constant = targets("regression", [[4, 1], [4, 2]], [[5, 1]])
    assert constant.std == (1.0, 0.5)
    assert constant.test.tolist() == [[1.0, -1.0]]


def test_a_class_per_pixel_and_the_next_token():
    found = targets("segmentation", np.array([[[[0, 2], [1, -100]]]]), np.zeros((1, 2, 2), dtype=np.uint8))
    assert (found.train.shape, found.size) == ((1, 2, 2), 3)
    found = targets("next-token", [[4, 2, -100]], [[1, 1, 1]])
    assert (found.train.dtype, found.size) == (torch.int64, 5)


@pytest.mark.parametrize(
    ("kind", "train", "test", "message"),
    [
        (
            "classification",
            [0.5, 1.0],
            [1],
            "y must be integers or strings of shape .* are for task.kind = 'regression'",
        ),
        ("classification", ["a", "b"], ["c"], "the test label c does not occur among the training labels"),
        ("multilabel", [0, 1], [1], r"y must be zeros and ones of shape \(N, labels\) \(got int64 \(2,\)\)"),
        ("multilabel", [[0, 2]], [[1, 1]], r"y must be zeros and ones \(got 2 at \(0, 1\)\)"),
        ("multilabel", [[0, 1]], [[1, 1, 0]], r"must have the same shape \(got \(2,\) and \(3,\)\)"),
        ("regression", ["a"], ["b"], r"y must be numbers of shape \(N,\) or \(N, targets\)"),
        ("regression", [1.0, np.nan], [1.0], r"y must be finite \(got nan at \(1, 0\)\)"),
        ("segmentation", [[0, 1]], [[0, 1]], r"y must be classes 0, 1, 2 … of shape \(N, H, W\) \(got int64 of shape"),
        ("segmentation", [[[0]]], [[[1]]], "the test label 1 does not occur"),
        ("segmentation", [[[1, 2, -100]]], [[[2, 1, 1]]], r"labels must be 0, 1, 2 … \(got 1 to 2\); subtract 1"),
        (
            "next-token",
            [[-1]],
            [[1]],
            r"token ids 0, 1, 2 … of shape \(N, T\), or -100 where there is none \(got -1 at",
        ),
    ],
)
def test_wrong_targets(kind, train, test, message):
    with pytest.raises(InputError, match=message):
        targets(kind, train, test)


def load(tmp_path, kind, **arrays):
    np.savez(tmp_path / "own.npz", **arrays)
    return load_dataset(DataSettings(name=str(tmp_path / "own.npz"), test_fraction=0.5), kind)


def test_arrays_of_other_tasks(tmp_path):
    inputs = np.arange(8, dtype=np.float32).reshape(4, 2)
    dataset = load(tmp_path, "regression", x_train=inputs, y_train=np.array([4.0, 1.0, 3.0, 2.0]))
    # Evenly spaced among the sorted targets 1, 2, 3, 4: the second and the fourth are the test set.
    assert dataset.train.inputs.tolist() == inputs[1:3].tolist()
    assert (dataset.classes, dataset.target_mean, dataset.target_std) == (1, (2.0,), (1.0,))
    tokens = np.array([[0, 1], [9, 2], [1, 1], [2, 3]])
    dataset = load(tmp_path, "next-token", x_train=tokens, y_train=np.roll(tokens, -1, axis=1))
    assert (dataset.train.inputs.dtype, dataset.classes, dataset.input_shape) == (torch.int64, 10, (2,))


@pytest.mark.parametrize(
    ("kind", "inputs", "labels", "shapes"),
    [
        ("segmentation", np.zeros((4, 8, 8), np.uint8), np.arange(64).reshape(4, 4, 4) % 2, "(N, 8, 8), as the inputs"),
        ("next-token", np.ones((4, 5), int), np.ones((4, 4), int), "(N, 5), as the inputs have (got (2, 4))"),
    ],
)
def test_there_is_a_label_for_each_pixel_and_token(kind, inputs, labels, shapes, tmp_path):
    with pytest.raises(InputError) as error:
        load(tmp_path, kind, x_train=inputs, y_train=labels)
    assert f"own.npz: labels must have shape {shapes}" in str(error.value)


@pytest.mark.parametrize(
    ("kind", "targets", "names"),
    [
        ("classification", np.array([0, 1, 0, 1]), ["cat", "dog", "eel"]),
        ("multilabel", np.eye(2)[[0, 1, 0, 1]], ["furry", "wet"]),
        ("regression", np.arange(4.0), ["weight"]),
        ("segmentation", np.array([[[0, -100], [1, 0]]] * 4), ["ground", "cat", "sky"]),
        ("next-token", np.array([[0, 1]] * 4), ["a", "b", "c", "d"]),
    ],
)
def test_targets_have_the_names_that_are_given(kind, targets, names, tmp_path):
    inputs = {"segmentation": np.zeros((4, 2, 2), np.uint8), "next-token": np.array([[3, 0]] * 4)}
    inputs = inputs.get(kind, np.eye(4))
    dataset = load(tmp_path, kind, x_train=inputs, y_train=targets, class_names=names)
    assert (dataset.classes, dataset.class_names) == (len(names), tuple(names))
    plain = load(tmp_path, kind, x_train=inputs, y_train=targets)
    assert plain.train.labels.tolist() == dataset.train.labels.tolist()


@pytest.mark.parametrize(
    ("kind", "targets", "names", "message"),
    [
        ("multilabel", np.eye(2)[[0, 1, 0, 1]], ["furry"], "class_names must be 2, one for each column (got 1)"),
        ("classification", np.array([0, 1, 2, 1]), ["cat", "dog"], "labels must be 0 to 1 (got 1 to 2)"),
        ("classification", np.array([0, 1, -100, 1]), ["cat", "dog"], "labels must be 0 to 1 (got -100 to 1)"),
        ("classification", np.array(list("abab")), ["a", "b"], "class_names must not be given, as the labels are al"),
        ("classification", np.array([0, 1, 0, 1]), ["cat", "cat"], "class_names must differ (got 'cat' twice)"),
        ("classification", np.array([0, 1, 0, 1]), [3, 4], "class_names must be a list of names (got int64 of shape ("),
        ("next-token", np.array([[0, 1]] * 4), ["a", "b"], "tokens must be 0 to 1 (got 3)"),
    ],
)
def test_names_that_do_not_fit_the_targets(kind, targets, names, message, tmp_path):
    inputs = np.array([[3, 0]] * 4) if kind == "next-token" else np.eye(4)
    with pytest.raises(InputError) as error:
        load(tmp_path, kind, x_train=inputs, y_train=targets, class_names=names)
    assert message in str(error.value)


def test_named_inputs_of_a_function(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "def load():\n"
        "    x = {'input_ids': np.array([[1, 2], [3, 0]]), 'attention_mask': np.array([[1, 1], [1, 0]])}\n"
        "    return {'x_train': x, 'y_train': [0, 1], 'x_test': x, 'y_test': [0, 1]}\n"
    )
    dataset = load_dataset(DataSettings(name=f"{tmp_path}/mine.py:load"))
    assert dataset.train.inputs["attention_mask"].tolist() == [[1, 1], [1, 0]]


def test_a_task_that_the_data_does_not_fit(tmp_path):
    with pytest.raises(InputError, match=r"^task.kind: 'regression' does not fit 'digits', which has one class per im"):
        load_dataset(DataSettings(), "regression")
    with pytest.raises(
        InputError, match=r"^task.kind: 'multilabel' does not fit .*, a folder with one class per image"
    ):
        load_dataset(DataSettings(name=str(tmp_path)), "multilabel")
    with pytest.raises(InputError, match=r"integers are token ids, 0, 1, 2 … \(got -1\); features must be floats"):
        load(tmp_path, "classification", x_train=np.array([[-1, 2]]), y_train=np.array([1]))
