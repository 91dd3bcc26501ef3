"""Low-rank adapters: what they compute, what is trained, what travels, and how they are merged."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fedsol
from fedsol import Experiment
from fedsol.config.model import LoraSettings, ModelSettings
from fedsol.core.files import tensors_from_bytes
from fedsol.core.weights import clone, size_in_bytes
from fedsol.data.batches import Batch
from fedsol.errors import InputError
from fedsol.federation.federation import build_federation
from fedsol.federation.trained import TrainedModel
from fedsol.models import ModelShape
from fedsol.models.build import build_split_model
from fedsol.models.lora import adapt, merge
from fedsol.models.split import SplitModel
from fedsol.training.loop import train_federation
from tests.support.cases import experiment
from tests.support.runs import StopAfter, assert_same_run, trained
from tests.support.tensors import same_tensors
from tests.support.toys import task_for

VECTORS = ModelShape((6,), 3)


def linear(input_shape, classes):
    """A model that is a single layer."""
    return nn.Sequential(nn.Linear(input_shape[0], classes))


def encoder(input_shape, classes):
    """Uses the weights of its layers without calling them, in evaluation."""
    return nn.Sequential(
        nn.Unflatten(1, (1, input_shape[0])),
        nn.TransformerEncoderLayer(input_shape[0], 2, 8, batch_first=True),
        nn.Flatten(),
        nn.Linear(input_shape[0], classes),
    )


def settings(name, **lora):
    return ModelSettings(name=name, lora=LoraSettings(rank=2, **lora))


def test_only_adapters_and_the_head_are_trained_and_at_first_nothing_changes():
    plain = build_split_model(ModelSettings(name="mlp"), VECTORS, 0)
    model = build_split_model(settings("mlp"), VECTORS, 0)
    assert set(model.body_names) == {f"body.{n}.lora_{part}" for n in (1, 3) for part in "ab"}
    assert set(model.head_names) == {"head.weight", "head.bias"}
    assert model.frozen.keys() == {f"body.{n}.{kind}" for n in (1, 3) for kind in ("weight", "bias")}
    weights, inputs = model.initial_weights(), torch.randn(4, 6)
    assert weights["body.1.lora_a"].shape == (2, 6)
    assert weights["body.1.lora_b"].shape == (64, 2)
    assert torch.equal(model.outputs(weights, inputs)[1], plain.outputs(plain.initial_weights(), inputs)[1])


def test_an_adapter_by_hand():
    """W + (alpha / rank) B A with numbers for which this is easy."""
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(2))
        layer.bias.fill_(1.0)
    model = nn.Sequential(layer, nn.Linear(2, 1))
    adapt(model, "1", LoraSettings(rank=1, alpha=3.0), torch.zeros(2, 2))
    with torch.no_grad():
        model[0].lora_a.copy_(torch.tensor([[1.0, 2.0]]))
        model[0].lora_b.copy_(torch.tensor([[1.0], [-1.0]]))
    expected = torch.tensor([[1 + 1 + 3 * 3.0, 1 + 1 - 3 * 3.0]])
    torch.testing.assert_close(model[0](torch.ones(1, 2)), expected)
    merge(model)
    assert type(model[0]) is nn.Linear
    torch.testing.assert_close(model[0].weight.detach(), torch.tensor([[4.0, 6.0], [-3.0, -5.0]]))
    torch.testing.assert_close(model[0](torch.ones(1, 2)), expected)


@pytest.mark.parametrize("targets", [None, "^0", "^1"])
def test_a_layer_with_two_names_has_its_one_adapter_under_both(targets):
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(2))
        layer.bias.zero_()
    model = nn.Sequential(layer, layer, nn.Linear(2, 1))
    adapt(model, "2", LoraSettings(rank=1, alpha=3.0, targets=targets), torch.zeros(2, 2))
    assert model[0] is model[1]
    with torch.no_grad():
        model[1].lora_a.copy_(torch.tensor([[1.0, 2.0]]))
        model[1].lora_b.copy_(torch.tensor([[1.0], [-1.0]]))
    expected = torch.tensor([[-8.0, 10.0]])  # [[4, 6], [-3, -5]] twice; once it is [[10, -8]]
    torch.testing.assert_close(model[:2](torch.ones(1, 2)), expected)
    split = SplitModel(model, "2", torch.zeros(2, 2))
    assert split.body_names == ("0.lora_a", "0.lora_b")
    merge(model)
    assert model[0] is model[1]
    assert type(model[0]) is nn.Linear
    torch.testing.assert_close(model[:2](torch.ones(1, 2)), expected)


def test_full_rank_takes_the_step_of_full_fine_tuning():
    """With B = 0 only B moves at first: W changes by -lr s^2 G A^T A: by -lr G, as A is orthogonal and s = 1."""
    full = build_split_model(ModelSettings(name=f"{__name__}:linear"), VECTORS, 0)
    low = ModelSettings(name=f"{__name__}:linear", lora=LoraSettings(rank=6, alpha=6.0, targets="."))
    adapted = build_split_model(low, VECTORS, 0)
    orthogonal = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1)))[0]
    batch = Batch(torch.randn(8, 6, generator=torch.Generator().manual_seed(2)), torch.arange(8) % 3)
    losses = {}
    for name, model in (("full", full), ("adapted", adapted)):
        weights = model.initial_weights()
        if name == "adapted":
            assert weights.keys() == {"0.lora_a", "0.lora_b"}
            weights["0.lora_a"] = orthogonal
        gradient, _ = task_for(model, weights).at(weights, batch).gradient()
        moved = {n: tensor - 0.5 * gradient[n] * (n != "0.bias") for n, tensor in weights.items()}
        losses[name] = F.cross_entropy(model.outputs(moved, batch.inputs)[1], batch.labels)
        losses[f"{name} at first"] = F.cross_entropy(model.outputs(weights, batch.inputs)[1], batch.labels)
    assert losses["full at first"] == losses["adapted at first"]
    assert losses["full"] < losses["full at first"] - 0.01
    assert abs(losses["full"] - losses["adapted"]) <= 1e-5


def test_a_perturbation_of_the_head_shares_the_pass_through_the_adapters():
    model = build_split_model(settings("mlp"), VECTORS, 0)
    weights = model.initial_weights()
    batch = Batch(torch.randn(4, 6), torch.arange(4) % 3)
    point = task_for(model, weights).at(weights, batch)
    step = {name: torch.ones_like(weights[name]) for name in model.head_names}
    assert point.moved(step).features is point.features
    everywhere = {name: torch.ones_like(tensor) for name, tensor in weights.items()}
    assert point.moved(everywhere).features is not point.features


LORA = {"model.lora.rank": 2, "model.lora.alpha": 4.0}


def adapted_run(**changes):
    table = experiment({"name": "fedsol", "perturb": "all"}).override(LORA)
    return table.override({key.replace("__", "."): value for key, value in changes.items()})


def test_a_merged_model_is_a_plain_one_with_the_same_answers(tmp_path):
    run = trained(adapted_run())
    inputs = torch.rand(5, 1, 8, 8)
    adapted, merged = run.model(), run.model(merged=True)
    assert {type(module) for module in merged.modules()} == {type(m) for m in build_plain().modules()}
    torch.testing.assert_close(merged(inputs), adapted(inputs))
    assert not torch.equal(merged(inputs), build_plain().eval()(inputs))
    run.export(tmp_path / "model.safetensors")
    loaded = TrainedModel.load(tmp_path / "model.safetensors")
    assert loaded.experiment.model.lora.rank is None
    assert loaded.weights.keys() == dict(build_plain().state_dict()).keys()
    assert torch.equal(loaded.module()(inputs), merged(inputs))


def build_plain():
    return fedsol.train(experiment({"name": "local-only"}, rounds=1)).model()


def test_adapters_are_the_same_on_workers_and_after_a_resume(tmp_path):
    run = trained(adapted_run(rounds=3))
    assert_same_run(fedsol.train(adapted_run(rounds=3, engine__kind="workers", engine__workers=2)), run)
    with pytest.raises(KeyboardInterrupt):
        fedsol.train(adapted_run(rounds=3), [StopAfter(2)], tmp_path)
    assert_same_run(fedsol.train(adapted_run(rounds=3), out=tmp_path, resume=True), run)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model.lora.targets": "nowhere"},
            r"model\.lora\.targets: 'nowhere' matches no linear layer; they are: body\.1, body\.3",
        ),
        ({"model.lora.targets": "["}, r"model\.lora\.targets: must be a regular expression"),
        ({"model.lora.rank": 0}, r"model\.lora\.rank: must be greater than or equal to 1"),
        ({"model.lora.rank": None}, r"model\.lora: must have a rank if alpha or targets is set"),
        ({"model.lora.ranks": 4}, r"model\.lora\.ranks: unknown key; did you mean 'rank'"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        build_federation(experiment({"name": "fedavg"}).override({**LORA, **changes}))


def test_a_layer_that_is_not_called_is_refused():
    low = ModelSettings(name=f"{__name__}:encoder", lora=LoraSettings(rank=2))
    with pytest.raises(InputError, match=r"model\.lora\.targets: '1\.linear1' is not called as a layer"):
        build_split_model(low, VECTORS, 0)


def transformer(num_labels):
    """A DistilBERT from a tiny configuration."""
    transformers = pytest.importorskip("transformers", reason="pip install 'fedsol[text]'")
    sizes = {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "max_position_embeddings": 8}
    config = transformers.DistilBertConfig(vocab_size=12, num_labels=num_labels, **sizes)
    return transformers.DistilBertForSequenceClassification(config)


def with_peft(num_labels):
    """The same with peft's adapters."""
    peft = pytest.importorskip("peft", reason="pip install 'fedsol[text]'")
    low = {"r": 2, "lora_alpha": 4, "target_modules": ["q_lin", "v_lin"], "modules_to_save": ["classifier"]}
    return peft.get_peft_model(transformer(num_labels), peft.LoraConfig(task_type="SEQ_CLS", **low))


def sentences():
    """Sixty short sentences of three kinds, each a row of token ids."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    tokens = torch.randint(1, 5, (60, 6), generator=generator) + 3 * labels[:, None]
    named = {"input_ids": tokens.numpy(), "attention_mask": torch.ones_like(tokens).numpy()}
    return {
        "x_train": named["input_ids"][:48],
        "y_train": labels[:48].numpy(),
        "x_test": named["input_ids"][48:],
        "y_test": labels[48:].numpy(),
    }


def of_sentences(factory, **lora):
    return Experiment(
        rounds=2,
        data={"name": f"{__name__}:sentences", "partition": {"kind": "iid", "clients": 2}},
        model={"name": f"{__name__}:{factory}", "lora": lora},
        server={"fraction": 1.0},
        client={"epochs": 1, "lr": 0.1, "batch_size": 8},
        algorithm={"name": "fedsol"},
        engine={"kind": "local"},
    )


ADAPTERS = 2 * (2 * 8 + 8 * 2)  # A and B of two layers of 8 by 8
HEAD = 3 * 8 + 3


TRANSFORMERS = {
    "fedsol": (of_sentences("transformer", rank=2, alpha=4.0, targets="q_lin|v_lin"), ADAPTERS + HEAD),
    "peft": (of_sentences("with_peft"), ADAPTERS + HEAD + 8 * 8 + 8),  # and `pre_classifier`, by the end of its name
}


@pytest.mark.parametrize("by", TRANSFORMERS)
def test_of_a_transformer_adapters_and_head_travel_and_nothing_else(by, tmp_path):
    settings, count = TRANSFORMERS[by]
    run = trained(settings)
    federation = build_federation(settings)
    assert sum(tensor.numel() for tensor in run.weights.values()) == count
    assert size_in_bytes(run.weights) == 4 * count
    assert all(row["bytes_up"] == row["bytes_down"] == 2 * 4 * count for row in run.rows)
    assert not same_tensors(run.weights, federation.initial_weights())
    before = clone(federation.model.frozen)
    train_federation(federation)
    assert same_tensors(federation.model.frozen, before)
    workers = fedsol.train(settings.override({"engine.kind": "workers", "engine.workers": 2}), out=tmp_path / "run")
    assert_same_run(workers, run)
    for path in (tmp_path / "run").rglob("*.safetensors"):
        assert tensors_from_bytes(path.read_bytes()).keys() == {f"weights/{name}" for name in run.weights}
    tokens = torch.as_tensor(sentences()["x_test"])
    torch.testing.assert_close(run.model(merged=True)(tokens).logits, run.model()(tokens).logits)
    assert not any("lora" in name for name in run.model(merged=True).state_dict())


def test_a_flower_deployment_with_two_nodes_carries_adapters_only(tmp_path):
    pytest.importorskip("flwr", reason="Flower is an optional dependency: pip install 'fedsol[flower]'")
    from tests.support.fake_grid import FakeGrid, deployed

    settings = of_sentences("transformer", rank=2, alpha=4.0, targets="q_lin|v_lin")
    sent = []

    class Watched(FakeGrid):
        def push_messages(self, messages):
            sent.extend(message.content for message in messages if message.metadata.message_type == "train")
            return super().push_messages(messages)

    run, _ = deployed(settings, tmp_path, Watched(2, tmp_path / "states"))
    assert_same_run(run, trained(settings))
    assert [content.array_records["arrays"].keys() for content in sent] == [run.weights.keys()] * 4
