"""Exported models: the same numbers as torch, on a batch of another size, where fedsol cannot be imported."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import fedsol
from fedsol import Experiment, InputError
from fedsol.core.files import tensors_to_bytes
from fedsol.data.description import DataDescription, InputTensor
from fedsol.data.types import Category, Columns, Number
from fedsol.federation.federation import build_federation
from fedsol.federation.trained import TrainedModel
from fedsol.inference.export import export, make_graph
from fedsol.inference.predictions import outputs_of, predict
from fedsol.inference.samples import read_samples
from fedsol.models import MODELS
from tests.support.cases import experiment
from tests.support.runs import trained

QUICK = {("small", ".onnx"), ("small", ".pt2"), ("cnn", ".onnx")}
NO_FEDSOL = "import sys; sys.modules['fedsol'] = None; sys.path = [p for p in sys.path if not p.endswith('src')]\n"
RUN_ONNX = """
import json, numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
given = session.get_inputs()
metadata = session.get_modelmeta().custom_metadata_map
names = [output.name for output in session.get_outputs()]
outputs = session.run(None, dict(np.load(sys.argv[2])))
description = [given[0].name, given[0].type, given[0].shape, names]
"""
RUN_PT2 = """
import json, numpy as np, torch
files = {"metadata.json": ""}
program = torch.export.load(sys.argv[1], extra_files=files)
metadata = json.loads(files["metadata.json"])
inputs = {name: torch.from_numpy(array) for name, array in np.load(sys.argv[2]).items()}
with torch.no_grad():
    outputs = [tensor.numpy() for tensor in program.module()(inputs if len(inputs) > 1 else inputs["inputs"])]
description = []
"""
REPORT = """
np.savez(sys.argv[3], *outputs)
print(json.dumps([metadata, description]))
"""


def in_a_process_without_fedsol(path, inputs):
    """Return the outputs, the metadata and the form of an exported model."""
    folder = path.parent
    np.savez(folder / "inputs.npz", **inputs)
    code = NO_FEDSOL + (RUN_ONNX if path.suffix == ".onnx" else RUN_PT2) + REPORT
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        code,
        str(path),
        str(folder / "inputs.npz"),
        str(folder / "outputs.npz"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    metadata, form = json.loads(done.stdout)
    with np.load(folder / "outputs.npz") as outputs:
        return [outputs[name] for name in outputs.files], metadata, form


IMAGES = DataDescription(
    "photos", "images", {"inputs": InputTensor("uint8", (1, 28, 28))}, 4, ("a", "b", "c", "d"), (0.3,), (0.25,), 3
)
TEXT = DataDescription("text", "tokens", {"inputs": InputTensor("int64", (12,))}, 4, ("a", "b", "c", "d"), vocabulary=9)
TABLE = DataDescription(
    "ward",
    "named",
    {"numbers": InputTensor("float32", (2,)), "categories": InputTensor("int64", (1,))},
    4,
    ("a", "b", "c", "d"),
    columns=Columns((Number("age", 40.0, 10.0), Number("dose", 1.0, 0.5)), (Category("sex", ("f", "m")),)),
)
DATA = {"text": TEXT, "tabular": TABLE}


def untrained(name, **options):
    """A built-in model with its initial weights, and statistics that matter."""
    task = {"kind": "segmentation"} if name == "unet" else {}
    data = {"partition": {"kind": "iid"}}
    settings = Experiment(model={"name": name, "options": options}, task=task, data=data)
    empty = TrainedModel(settings, {}, DATA.get(name, IMAGES))
    return TrainedModel(settings, empty.split_model(torch.device("cpu")).initial_weights(), empty.data)


def some_inputs(data):
    """Five raw inputs by name."""
    rng = np.random.default_rng(0)
    limit = {"images": 256, "tokens": 9, "named": 3}[data.kind]
    return {
        name: (
            rng.normal(40, 9, (5, *one.shape)) if one.type == "float64" else rng.integers(0, limit, (5, *one.shape))
        ).astype(one.type)
        for name, one in data.raw_inputs.items()
    }


def torch_outputs(model, inputs):
    """What the module says about inputs that were read and normalized as for every prediction."""
    source = next(iter(inputs.values())) if len(inputs) == 1 else _frame(inputs)
    return torch.cat(list(outputs_of(model, read_samples(source, model.data)))), predict(model, source).probabilities


def _frame(inputs):
    sexes = np.array(["?", "f", "m"])[inputs["categories"][:, 0]]
    return {"age": inputs["numbers"][:, 0], "dose": inputs["numbers"][:, 1], "sex": sexes}


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        pytest.param(name, suffix, marks=() if (name, suffix) in QUICK else pytest.mark.full)
        for name in MODELS
        for suffix in (".onnx", ".pt2")
    ],
)
def test_every_model_gives_the_same_numbers_without_fedsol(name, suffix, tmp_path):
    model = untrained(name)
    path, _ = export(model, tmp_path / f"model{suffix}")
    inputs = some_inputs(model.data)
    (logits, probabilities), metadata, form = in_a_process_without_fedsol(path, inputs)
    if suffix == ".onnx":
        assert form[2] == ["batch", *(["length"] if name == "text" else next(iter(inputs.values())).shape[1:])]
    expected_logits, expected_probabilities = torch_outputs(model, inputs)
    np.testing.assert_allclose(logits, expected_logits.numpy(), atol=1e-5)
    np.testing.assert_allclose(probabilities, expected_probabilities, atol=1e-5)
    assert json.loads(metadata["class_names"]) == ["a", "b", "c", "d"]
    assert json.loads(metadata["input_shape"]) == {name: list(one.shape) for name, one in model.data.inputs.items()}


def test_the_module_on_normalized_images_is_the_graph_on_raw_ones():
    model, inputs = untrained("small"), some_inputs(IMAGES)["inputs"]
    normalized = (torch.from_numpy(inputs) / 255 - 0.3) / 0.25
    logits, _ = make_graph(model).module()(torch.from_numpy(inputs))
    torch.testing.assert_close(logits, model.module()(normalized.repeat(1, 3, 1, 1)), atol=1e-5, rtol=0)


def test_a_small_transformer_takes_batches_of_any_size():
    model = untrained("slvit", dim=8, depth=1, heads=2, dim_head=4, mlp=8)
    inputs = some_inputs(IMAGES)["inputs"]
    _, probabilities = make_graph(model).module()(torch.from_numpy(inputs))
    np.testing.assert_allclose(probabilities.detach().numpy(), predict(model, inputs).probabilities, atol=1e-5)


def test_features_enter_the_graph_as_they_are(tmp_path):
    settings = experiment(
        {"name": "fedavg"}, data__name="tests.support.user_code:uneven_clients", data__partition__kind="iid"
    )
    run = trained(settings)
    path, _ = run.export(tmp_path / "deep" / "model.onnx")
    inputs = np.random.default_rng(0).normal(size=(1, 4)).astype(np.float32)
    (logits, probabilities), _, form = in_a_process_without_fedsol(path, {"inputs": inputs})
    assert form == ["inputs", "tensor(float)", ["batch", 4], ["logits", "probabilities"]]
    with torch.no_grad():
        np.testing.assert_allclose(logits, run.model()(torch.from_numpy(inputs)).numpy(), atol=1e-5)
    np.testing.assert_allclose(probabilities, run.predict(inputs).probabilities, atol=1e-5)


def test_a_saved_model_is_a_model_without_its_run(tmp_path):
    run = trained(experiment({"name": "fedavg"}))
    path, _ = run.export(tmp_path / "model.safetensors")
    loaded = TrainedModel.load(path)
    inputs = np.random.default_rng(0).integers(0, 256, (5, 1, 8, 8)).astype(np.uint8)
    assert (predict(loaded, inputs).probabilities == run.predict(inputs).probabilities).all()
    assert loaded.experiment == run.experiment
    assert loaded.metadata() == run.trained().metadata()
    assert loaded.facts["rounds"] == 2


def test_the_card_says_what_the_model_is_and_how_well_it_does(tmp_path):
    run = fedsol.train(experiment({"name": "fedsol", "rho": 1.5}, seed=3), out=tmp_path / "run")
    _, card = run.export(tmp_path / "model.safetensors")
    text = card.read_text()
    hashes = run.files.read_hashes()
    for expected in (
        "# model.safetensors\n\nmlp for digits, trained by fedsol in 2 rounds.",
        "- method: fedsol (usage = perturbed, rho = 1.5,",
        f"- data sha256: {hashes['data_sha256']}",
        f"- partition sha256: {hashes['partition_sha256']}",
        *(f"- commit: {commit}" for commit in [run.environment.get("commit")] if commit),
        f"| test_accuracy | {run.final_accuracy:.4f} |",
        f"| 9 | {run.rows[-1]['class_accuracy'][9]:.4f} |",
        "| client | samples | accuracy |",
        "rho = 1.5\n",
    ):
        assert expected in text


def test_the_card_has_the_results_on_hold_out_sets(tmp_path, caplog):
    run = fedsol.train(experiment({"name": "fedavg"}, data__partition__held_out=0.3), out=tmp_path / "run")
    _, card = run.export(tmp_path / "model.safetensors")
    federation = build_federation(run.experiment)
    tallies = [federation.evaluate_client(run.weights, client) for client in range(4)]
    assert "| client | samples | accuracy | held out | held-out accuracy |" in card.read_text()
    for client, tally in enumerate(tallies):
        (line,) = [
            line for line in card.read_text().splitlines() if line.startswith(f"| {client} | ") and line.count("|") == 6
        ]
        assert line.endswith(f"| {sum(tally.examples)} | {tally.accuracy:.4f} |")
    environment = run.path / "environment.json"
    environment.write_text(json.dumps({**json.loads(environment.read_text()), "data_sha256": "other"}))
    _, card = fedsol.Run.load(run.path).export(tmp_path / "again.safetensors")
    assert "held-out accuracy" not in card.read_text()
    assert "the model card has no hold-out results: " in caplog.text


def test_a_client_does_as_well_as_its_classes_do():
    from fedsol.runs.facts import by_client

    found = by_client([[3, 1], [0, 2], [0, 0]], [0.5, 1.0])["by_client"]
    assert [row["accuracy"] for row in found] == [0.625, 1.0, None]
    assert [row["samples"] for row in found] == [4, 2, 0]
    assert by_client([[3, 1]], [None, 1.0])["by_client"][0]["accuracy"] == 1.0
    assert by_client([[3, 1]], None)["by_client"] == [{"client": 0, "samples": 4}]


def test_what_cannot_be_exported(tmp_path, monkeypatch):
    run = trained(experiment({"name": "fedavg"}))
    with pytest.raises(InputError, match=r"^-o: unknown value '\.onx'; did you mean '\.onnx'\?"):
        run.export(tmp_path / "model.onx")
    monkeypatch.setattr("fedsol.inference.export.MOST_BYTES", 100)
    with pytest.raises(InputError, match=r"^-o: an \.onnx file must have less than 2 GB; use \.pt2 or \.safetensors$"):
        run.export(tmp_path / "model.onnx")
    monkeypatch.setattr("fedsol.inference.export.find_spec", lambda name: None)
    with pytest.raises(
        InputError, match=r"^-o: '\.onnx' requires onnx and onnxscript; run: pip install 'fedsol\[export\]'$"
    ):
        run.export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_model_that_fixes_its_batch_is_refused(tmp_path):
    run = trained(experiment({"name": "fedavg"}, model__name="tests.support.user_code:counting", model__options={}))
    with pytest.raises(
        InputError, match=r"'tests\.support\.user_code:counting' cannot be exported for batches of any size"
    ):
        run.export(tmp_path / "model.pt2")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"hello", "must be a safetensors file"), (b"\x02\0\0\0\0\0\0\0{}", "must be a model that fedsol saved")],
)
def test_a_file_that_is_no_model(tmp_path, content, message):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=message):
        TrainedModel.load(tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        TrainedModel.load(tmp_path / "none.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"facts": "["}, r"model\.safetensors: facts: must be a JSON object"),
        ({"facts": "[1]"}, r"model\.safetensors: facts: must be a JSON object"),
        ({"data": "{}"}, r"model\.safetensors: must describe the data of a run \(name: Field required\)"),
        ({"experiment": "x ="}, r"model\.safetensors: cannot be read as TOML"),
        ({"experiment": ""}, r"model\.safetensors: model\.name: is missing"),
    ],
)
def test_metadata_that_was_changed(tmp_path, change, message):
    model = untrained("small")
    content = tensors_to_bytes(model.weights, {**model.metadata(), **change})
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=message):
        TrainedModel.load(tmp_path / "model.safetensors")
