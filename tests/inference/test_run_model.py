"""run.model(), run.predict() and run.evaluate(): the model of a run, in memory and on disk."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedsol
from fedsol import InputError
from fedsol.data.batches import normalize
from fedsol.data.catalog import load_dataset
from tests.support.cases import WITH_BATCH_NORM, experiment
from tests.support.runs import trained

DIGITS = experiment({"name": "fedavg"})
OLD_RUNS = Path(__file__).parents[1] / "fixtures" / "runs-0.1.0"


@pytest.fixture
def saved(tmp_path):
    return fedsol.train(DIGITS, out=tmp_path / "run")


def test_the_model_is_a_plain_module_with_the_final_weights():
    run = trained(DIGITS)
    model = run.model()
    assert type(model).__mro__[-2] is nn.Module
    assert not any(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert model.state_dict().keys() == run.weights.keys()
    assert all(torch.equal(tensor, run.weights[name]) for name, tensor in model.state_dict().items())


def test_the_model_is_new_each_time():
    run = trained(DIGITS)
    with torch.no_grad():
        run.model().head.weight.zero_()
    assert run.model().head.weight.abs().sum() > 0


def test_a_run_from_disk_has_the_same_model(saved):
    loaded = fedsol.Run.load(saved.directory).model()
    assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in saved.model().state_dict().items())


def test_a_users_model_is_the_users_module():
    model = trained(experiment({"name": "fedavg"}, **WITH_BATCH_NORM)).model()
    assert type(model) is nn.Sequential
    assert isinstance(model[2], nn.BatchNorm1d)
    assert int(model[2].num_batches_tracked) > 0


def test_predictions_are_those_of_the_module_on_normalized_inputs():
    run = trained(DIGITS)
    data = load_dataset(DIGITS.data)
    found = run.predict(data.test.inputs[:7].numpy())
    with torch.no_grad():
        expected = run.model()(normalize(data.test.inputs[:7], data))
    np.testing.assert_allclose(found.probabilities, expected.softmax(dim=1).numpy(), atol=1e-6)
    assert found.labels.tolist() == expected.argmax(dim=1).tolist()
    assert found.class_names == tuple("0123456789")
    assert found.label_names == [str(label) for label in found.labels]
    table = found.to_frame()
    assert list(table.columns) == ["sample", "label", "probability", *(f"p_{number}" for number in range(10))]
    assert table["probability"].tolist() == found.probabilities.max(axis=1).tolist()


def test_evaluation_repeats_the_last_row_exactly(saved):
    row, found = saved.rows[-1], fedsol.Run.load(saved.directory).evaluate()
    assert (found["accuracy"], found["loss"]) == (row["test_accuracy"], row["test_loss"])
    assert list(found["class_accuracy"].values()) == row["class_accuracy"]
    assert found["examples"] == len(load_dataset(DIGITS.data).test)


def test_evaluation_on_other_data(saved):
    test = load_dataset(DIGITS.data).test
    whole = saved.evaluate()
    assert saved.evaluate(test) == saved.evaluate((test.inputs.numpy(), test.labels.numpy())) == whole
    half = saved.evaluate((test.inputs[:10].numpy(), test.labels[:10].numpy()))
    right = saved.predict(test.inputs[:10].numpy()).labels == test.labels[:10].numpy()
    assert half["accuracy"] == right.mean()
    with pytest.raises(InputError, match="data: has no labels"):
        saved.evaluate(test.inputs.numpy())


def test_predicting_needs_no_training_data(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 4)).astype(np.float32), np.array(["no", "yes"] * 20)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[:8], y_test=y[:8])
    settings = experiment({"name": "fedavg"}, data__name=str(tmp_path / "own.npz"), data__partition__kind="iid")
    fedsol.train(settings, out=tmp_path / "run")
    (tmp_path / "own.npz").unlink()
    run = fedsol.Run.load(tmp_path / "run")
    assert set(run.predict(x).label_names) <= {"no", "yes"}
    assert run.evaluate((x, y))["examples"] == 40
    with pytest.raises(InputError, match=r"own\.npz: no such file"):
        run.evaluate()


@pytest.mark.parametrize("path", sorted(OLD_RUNS.rglob("experiment.toml")), ids=lambda path: path.parent.name)
def test_directories_of_earlier_versions_load_their_data_instead(path):
    run = fedsol.Run.load(path.parent)
    assert not (path.parent / "data.json").exists()
    if run.weights:
        assert run.evaluate()["accuracy"] == run.rows[run.trained_rounds - 1]["test_accuracy"]


def test_a_run_without_a_checkpoint_has_no_model(saved):
    shutil.rmtree(saved.path / "checkpoints")
    with pytest.raises(InputError, match="has no global model yet"):
        fedsol.Run.load(saved.path).model()


def test_weights_that_do_not_fit_the_model(saved):
    run = fedsol.Run.load(saved.path)
    run.weights = {name: tensor for name, tensor in run.weights.items() if name != "head.bias"}
    with pytest.raises(InputError, match=r"model\.name: the weights do not fit the model: 'head.bias' is in only one"):
        run.model()
    run.weights = {**saved.weights, "head.bias": torch.zeros(3)}
    with pytest.raises(InputError, match=r"the weight 'head.bias' must have the shape \(10,\) \(got \(3,\)\)"):
        run.model()


def test_the_best_model_by_validation(tmp_path):
    settings = experiment({"name": "fedavg"}, data__validation=0.3, rounds=3, client__lr=0.3)
    run = fedsol.train(settings, out=tmp_path / "run")
    loaded = fedsol.Run.load(run.path)
    best = loaded.model("best").state_dict()
    assert all(torch.equal(tensor, best[name]) for name, tensor in run.best_weights.items())
    assert loaded.evaluate(which="best")["accuracy"] == run.rows[run.best_round - 1]["test_accuracy"]
    _, card = loaded.export(tmp_path / "best.safetensors", which="best")
    assert f"- rounds: {run.best_round}\n- checkpoint: the best round by validation\n" in card.read_text()
