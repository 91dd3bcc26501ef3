"""Models of every task and kind of data: predicted, evaluated and exported."""

import json
import subprocess
import sys

import numpy as np
import pandas
import pytest
import torch

import fedsol
from fedsol import Experiment
from fedsol.inference.export import make_graph
from tests.support.cli import fedsol as command

QUICK = {"engine": {"kind": "local"}, "client": {"epochs": 2, "lr": 0.05}, "rounds": 2, "server": {"fraction": 1.0}}
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def ward(tmp_path_factory):
    """A table with numbers far from 0, a missing one, and a category."""
    rows = 60
    age, sex = RNG.normal(1000, 5, rows), np.array(["f", "m"] * (rows // 2))
    frame = pandas.DataFrame({"age": age, "sex": sex, "dose": RNG.normal(0, 0.1, rows)})
    frame["cost"] = 10_000 + 300 * (age - 1000) + 100 * (sex == "m")
    frame.loc[3, "dose"] = None
    path = tmp_path_factory.mktemp("data") / "ward.csv"
    frame.to_csv(path, index=False)
    return path


def table_run(ward, out=None, **changes):
    data = {"name": str(ward), "target": "cost", "missing": "mean", "test_fraction": 0.2}
    partition = {"kind": "iid", "clients": 3}
    settings = {"data": {**data, "partition": partition, **changes}, "task": {"kind": "regression"}, **QUICK}
    return fedsol.train(Experiment(**settings), out=out)


def test_a_regression_predicts_in_the_units_of_the_data(ward, tmp_path):
    table_run(ward, tmp_path / "run", features=["age", "dose"])
    run, frame = fedsol.Run.load(tmp_path / "run"), pandas.read_csv(ward)
    found = run.predict(frame.drop(columns="cost"))
    assert (found.probabilities, found.class_names, found.labels.shape) == (None, ("cost",), (60, 1))
    assert 9_000 < found.labels.mean() < 11_000
    np.testing.assert_array_equal(run.predict(frame[["age", "dose"]].to_numpy()).labels, found.labels)
    metrics = run.evaluate(frame)
    assert metrics["rmse"] == pytest.approx(np.sqrt(np.mean((found.labels[:, 0] - frame["cost"]) ** 2)), rel=1e-4)
    assert "class_accuracy" not in metrics
    assert run.evaluate()["rmse"] == run.rows[-1]["test_rmse"]
    assert found.to_frame().columns.tolist() == ["sample", "cost"]
    numbers = frame[["age", "dose"]].to_numpy()
    (values,) = make_graph(run.trained()).module()(torch.from_numpy(numbers))
    np.testing.assert_allclose(values.detach().numpy(), found.labels, rtol=1e-5)


def test_a_table_with_categories_is_exported(ward, tmp_path):
    run = table_run(ward, tmp_path / "run")
    path, card = run.export(tmp_path / "model.onnx")
    frame = pandas.read_csv(ward)[:5]
    codes = frame["sex"].map({"f": 1, "m": 2}).to_numpy()[:, None]
    np.savez(tmp_path / "inputs.npz", numbers=frame[["age", "dose"]].to_numpy(), categories=codes)
    code = """
import sys; sys.modules['fedsol'] = None
import numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
numpy.save(sys.argv[3], session.run(["values"], dict(numpy.load(sys.argv[2])))[0])
"""
    arguments = [str(path), str(tmp_path / "inputs.npz"), str(tmp_path / "values.npy")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "values.npy"), run.predict(frame).labels, rtol=1e-5)
    text = card.read_text()
    assert "- input `numbers`: float64, shape (batch, 2)" in text
    assert "- category `sex`: 1 … 2: f, m; 0: others" in text
    assert "- normalization: (number - mean) / std of each column" in text
    assert "- output: `values`, shape (batch, 1), in the units of the data: cost" in text


def test_a_table_from_the_command_line(ward, tmp_path):
    run = table_run(ward, tmp_path / "run")
    done = command("predict", run.path, ward, "-o", tmp_path / "predictions.csv")
    assert done.exit_code == 0, done.stderr
    assert len(pandas.read_csv(tmp_path / "predictions.csv")) == 60
    done = command("evaluate", run.path, "--data", ward, "--json")
    assert json.loads(done.stdout)["examples"] == 60


def digits_of(kind):
    """Digits as another task: several labels, or a class per pixel."""
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    images = (images[:90] * 15).astype(np.uint8).reshape(-1, 8, 8)
    several = np.stack([digits[:90] % 2 == 0, digits[:90] > 4], axis=1).astype(np.int64)
    targets = several if kind == "multilabel" else (images > 100).astype(np.int64)
    return {"x_train": images[:60], "y_train": targets[:60], "x_test": images[60:], "y_test": targets[60:]}


@pytest.fixture
def digits_run(request, tmp_path):
    kind, model = request.param
    np.savez(tmp_path / "digits.npz", **digits_of(kind))
    data = {"name": str(tmp_path / "digits.npz"), "partition": {"kind": "iid", "clients": 3}}
    return fedsol.train(
        Experiment(data=data, task={"kind": kind}, model={"name": model}, **QUICK), out=tmp_path / "run"
    )


@pytest.mark.parametrize("digits_run", [("multilabel", "small")], indirect=True)
def test_several_labels(digits_run):
    arrays = digits_of("multilabel")
    found = digits_run.predict(arrays["x_test"])
    assert found.labels.shape == found.probabilities.shape == (30, 2)
    assert (found.labels == (found.probabilities > 0.5)).all()
    metrics = digits_run.evaluate((arrays["x_test"], arrays["y_test"]))
    assert metrics["accuracy"] == (found.labels == arrays["y_test"]).mean() == digits_run.rows[-1]["test_accuracy"]
    assert found.label_names[0] == " ".join(name for name, there in zip("01", found.labels[0], strict=True) if there)
    assert found.to_frame().columns.tolist() == ["sample", "label", "p_0", "p_1"]
    _, probabilities = make_graph(digits_run.trained()).module()(torch.from_numpy(arrays["x_test"][:5, None]))
    np.testing.assert_allclose(probabilities.detach().numpy(), found.probabilities[:5], atol=1e-5)


@pytest.mark.parametrize("digits_run", [("segmentation", "unet")], indirect=True)
def test_a_class_per_pixel(digits_run, tmp_path):
    arrays = digits_of("segmentation")
    found = digits_run.predict(arrays["x_test"])
    assert found.labels.shape == (30, 8, 8)
    assert found.probabilities.shape == (30, 2, 8, 8)
    metrics = digits_run.evaluate((arrays["x_test"], arrays["y_test"]))
    assert metrics["iou"] == digits_run.rows[-1]["test_iou"]
    assert metrics["accuracy"] == pytest.approx((found.labels == arrays["y_test"]).mean())
    assert found.to_frame()["share_1"].tolist() == (found.labels == 1).mean(axis=(1, 2)).tolist()
    done = command("predict", digits_run.path, tmp_path / "digits.npz", "-o", tmp_path / "found.npz")
    assert done.exit_code == 0, done.stderr
    with np.load(tmp_path / "found.npz") as stored:
        np.testing.assert_array_equal(stored["labels"], found.labels)
    _, probabilities = make_graph(digits_run.trained()).module()(torch.from_numpy(arrays["x_test"][:5, None]))
    np.testing.assert_allclose(probabilities.detach().numpy(), found.probabilities[:5], atol=1e-5)


def words(kind, masked):
    """Sequences that count upward, of different lengths: the next token, or whether the first is even."""
    tokens = (RNG.integers(0, 10, (40, 1)) + np.arange(7)) % 10
    lengths = RNG.integers(3, 8, 40) if masked else np.full(40, 7)
    mask = (np.arange(7) < lengths[:, None]).astype(np.int64)
    labels = np.where(mask, (tokens + 1) % 10, -100) if kind == "next-token" else tokens[:, 0] % 2
    inputs = {"input_ids": tokens * mask, "attention_mask": mask} if masked else tokens
    return inputs, labels


def classified():
    return _split(*words("classification", masked=True))


def continued():
    return _split(*words("next-token", masked=True))


def _split(inputs, labels):
    first, last = ({name: array[part] for name, array in inputs.items()} for part in (slice(30), slice(30, None)))
    return {"x_train": first, "y_train": labels[:30], "x_test": last, "y_test": labels[30:]}


@pytest.mark.parametrize(("function", "kind"), [("classified", "classification"), ("continued", "next-token")])
def test_text_with_a_mask(function, kind):
    data = {"name": f"tests.inference.test_tasks:{function}", "partition": {"kind": "iid", "clients": 3}}
    run = fedsol.train(Experiment(data=data, task={"kind": kind}, model={"name": "text"}, **QUICK))
    ids, mask = np.array([[1, 2, 3, 4, 0, 0], [4, 5, 6, 7, 8, 9]]), np.array([[1, 1, 1, 1, 0, 0], [1] * 6])
    both = run.predict({"input_ids": ids, "attention_mask": mask})
    alone = run.predict({"input_ids": ids[:1, :4], "attention_mask": mask[:1, :4]})
    np.testing.assert_allclose(both.probabilities[0], alone.probabilities[0], atol=1e-5)
    for ask in (run.predict, lambda inputs: run.evaluate((inputs, [0] if kind == "classification" else [[1, 2]]))):
        with pytest.raises(fedsol.InputError, match=r"inputs: have a token that the model does not know; .* 0 to 9"):
            ask({"input_ids": np.array([[1, 10]]), "attention_mask": np.array([[1, 1]])})
    assert both.labels.shape == (2,)
    assert both.probabilities.shape == (2, 2 if kind == "classification" else 10)
    graph = make_graph(run.trained()).module()
    _, probabilities = graph({"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)})
    found = probabilities.detach().numpy()
    if kind == "next-token":
        found = np.stack([found[0, 3], found[1, 5]])
    np.testing.assert_allclose(found, both.probabilities, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_a_model_of_transformers_is_exported_for_any_batch_and_length(suffix, tmp_path):
    pytest.importorskip("transformers", reason="an optional dependency: pip install 'fedsol[text]'")
    data = {"name": "tests.inference.test_tasks:classified", "partition": {"kind": "iid", "clients": 3}}
    model = {"name": "tests.inference.test_tasks:tiny_bert", "head": "classifier"}
    run = fedsol.train(Experiment(data=data, model=model, **QUICK))
    path, _ = run.export(tmp_path / f"model{suffix}")
    inputs = {"input_ids": RNG.integers(0, 10, (5, 4)), "attention_mask": np.ones((5, 4), np.int64)}
    expected = run.predict(inputs).probabilities
    if suffix == ".pt2":
        named = {name: torch.from_numpy(array) for name, array in inputs.items()}
        found = torch.export.load(path).module()(named)[1].detach().numpy()
    else:
        onnxruntime = pytest.importorskip("onnxruntime")
        found = onnxruntime.InferenceSession(path).run(["probabilities"], inputs)[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert type(run.model()).__name__ == "BertForSequenceClassification"


def tiny_bert(classes, vocabulary):
    """A model of transformers from a configuration, without a download."""
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertForSequenceClassification(
        BertConfig(vocab_size=vocabulary, num_labels=classes, max_position_embeddings=16, **sizes)
    )
