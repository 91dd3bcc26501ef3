"""The models for tables, tokens and maps of classes: shapes, hand-computed counts, masks, and what they refuse."""

import math
import re

import pytest
import torch
from torch import nn

from fedsol.config.model import ModelSettings
from fedsol.errors import InputError
from fedsol.models import MODELS, ModelShape
from fedsol.models.build import build_model, build_split_model
from fedsol.models.tabular import Tabular
from fedsol.models.text import EncoderBlock, Text, positions
from fedsol.models.unet import UNet

IDS = torch.tensor([[3, 1, 4, 1], [5, 2, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
TABLE = {"numbers": torch.tensor([[0.5, -1.0], [2.0, 0.0]]), "categories": torch.tensor([[1, 0], [2, 6]])}
SHAPES = {
    "tabular": ModelShape((), 3, categories=(3, 7), examples=TABLE),
    "tabular of numbers": ModelShape((5,), 3),
    "text": ModelShape((4,), 3, vocabulary=6, examples=IDS),
    "text with a mask": ModelShape((), 3, vocabulary=6, examples={"input_ids": IDS, "attention_mask": MASK}),
    "text, next token": ModelShape((4,), 6, vocabulary=6, output_shape=(4, 6), examples=IDS),
    "unet": ModelShape((3, 9, 13), 4, output_shape=(4, 9, 13)),
}


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("case", SHAPES)
def test_every_model_as_a_function_of_its_weights(case: str) -> None:
    """Split at its head, which is found; the output has the task's shape; the seed alone decides."""
    shape = SHAPES[case]
    name = re.split("[ ,]", case)[0]
    model = build_split_model(ModelSettings(name=name), shape, 3)
    assert model.head == "head"
    assert not model.buffers  # no batch norm
    features, logits = model.outputs(model.initial_weights(), shape.probe())
    assert logits.shape == (2, *shape.outputs)
    assert torch.isfinite(logits).all()
    assert torch.equal(model.logits(model.initial_weights(), features), logits)
    again = build_split_model(ModelSettings(name=name), shape, 3).initial_weights()
    assert all(torch.equal(tensor, again[key]) for key, tensor in model.initial_weights().items())


def test_parameters_by_hand() -> None:
    # Embeddings 3 x 2 and 7 x 4; 2 + 2 + 4 = 8 inputs of the first layer.
    assert count(Tabular(2, (3, 7), 5, hidden=10)) == 6 + 28 + 10 * 9 + 10 * 11 + 5 * 11
    # An embedding is never wider than asked for.
    assert count(Tabular(0, (100,), 5, hidden=10, embedding=3)) == 300 + 10 * 4 + 10 * 11 + 5 * 11
    block = 2 * 8 + (3 * 8 * 8 + 3 * 8) + (8 * 8 + 8) + 2 * 8 + (8 * 6 + 6) + (6 * 8 + 8)
    assert count(Text(9, (3,), dim=8, depth=2, heads=2, mlp=6)) == 9 * 8 + 2 * block + 2 * 8 + 3 * 9
    # 3x3 convolutions without bias, each followed by a scale and a shift per channel.
    pairs = [(3, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16), (24, 8), (8, 8), (12, 4), (4, 4)]
    assert count(UNet((3, 8, 8), 5, width=4)) == sum(9 * a * b + 2 * b for a, b in pairs) + 5 * (4 + 1)


def test_an_unknown_category_is_zeros_and_stays_so() -> None:
    model = Tabular(2, (3, 7), 1)
    model(**TABLE).sum().backward()
    assert not model.embeddings[0].weight[0].any()
    assert not model.embeddings[1].weight.grad[0].any()
    assert model.embeddings[1].weight.grad[6].any()


def test_a_table_without_numbers() -> None:
    table = {**TABLE, "numbers": torch.zeros(2, 0)}
    shape = ModelShape((), 3, categories=(3, 7), examples=table)
    assert build_model("tabular", {}, shape, 0)(**table).shape == (2, 3)


@pytest.mark.parametrize("outputs", [(3,), (4, 6)])
def test_padding_changes_nothing(outputs: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = Text(6, outputs).eval()
    alone = model(IDS[1:, :2])
    padded = model(IDS, attention_mask=MASK)[1:]
    torch.testing.assert_close(padded[:, :2] if len(outputs) == 2 else padded, alone)
    other = model(torch.where(MASK == 1, IDS, 5), attention_mask=MASK)[1:]
    assert torch.equal(other[:, :2] if len(outputs) == 2 else other, padded[:, :2] if len(outputs) == 2 else padded)


def test_no_token_sees_a_later_one() -> None:
    torch.manual_seed(0)
    model = Text(6, (4, 6)).eval()
    changed = IDS.clone()
    changed[:, 2:] = 3
    before, after = model(IDS), model(changed)
    torch.testing.assert_close(before[:, :2], after[:, :2])
    assert not torch.allclose(before[:, 2], after[:, 2])
    whole = Text(6, (3,)).eval()
    assert not torch.allclose(whole(IDS), whole(changed))


def test_a_sample_without_real_tokens_has_finite_outputs_and_gradients() -> None:
    model = Text(6, (3,))
    logits = model(IDS, attention_mask=torch.zeros_like(IDS))
    logits.sum().backward()
    assert torch.isfinite(logits).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_attention_by_hand() -> None:
    """Two tokens, one head of width 1, where queries and keys are the token itself."""
    block = EncoderBlock(1, 1, 1)
    with torch.no_grad():
        block.to_qkv.weight.fill_(1.0)
        block.to_qkv.bias.zero_()
        block.to_output.weight.fill_(1.0)
        block.to_output.bias.zero_()
    tokens = torch.tensor([[[0.0], [2.0]]])
    everything = torch.ones(1, 1, 1, 2, dtype=torch.bool)
    # The first token (0) sees both alike: (0 + 2) / 2. The second: shares 1 : e^4 of 0 and 2.
    share = torch.tensor(4.0).sigmoid()
    expected = torch.tensor([[[1.0], [2 * share]]])
    torch.testing.assert_close(block.attended(tokens, everything), expected)
    first = torch.tensor([[[[True, False]]]])
    torch.testing.assert_close(block.attended(tokens, first), torch.zeros(1, 2, 1))


def test_positions_by_hand() -> None:
    found = positions(2, torch.zeros(1, 2, 3))
    # Rates 1 and 10000^(-1/2) = 0.01; two sines, then the cosines that fit.
    torch.testing.assert_close(found[0], torch.tensor([0.0, 0.0, 1.0]))
    torch.testing.assert_close(found[1], torch.tensor([math.sin(1), math.sin(0.01), math.cos(1)]))


@pytest.mark.parametrize("size", [(8, 8), (9, 11), (8, 31)])
def test_a_unet_takes_any_size(size: tuple[int, int]) -> None:
    assert UNet((1, *size), 3)(torch.randn(2, 1, *size)).shape == (2, 3, *size)


def test_a_unet_does_not_depend_on_the_batch() -> None:
    model = UNet((1, 8, 8), 3, width=6)
    images = torch.randn(3, 1, 8, 8)
    torch.testing.assert_close(model(images)[:1], model(images[:1]))


NUMBERS, IMAGES = ModelShape((5,), 3), ModelShape((1, 8, 8), 3)
OTHER = ModelShape((), 3, vocabulary=6, examples={"input_ids": IDS, "pixels": torch.zeros(2, 3)})
ONE = "gives one answer per sample, and the task takes one per"


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("mlp", SHAPES["text"], "must have numbers or images (got tokens); allowed here: text, module:factory"),
        ("cnn", SHAPES["tabular"], "must have images (got a table with categories); allowed here: tabular, module:f"),
        ("text", NUMBERS, "must have tokens (got numbers); allowed here: mlp, tabular, module:factory"),
        ("tabular", IMAGES, "must have numbers or a table with categories (got images); allowed here: small, mlp,"),
        ("text", OTHER, "must have tokens (got named tensors); allowed here: module:factory"),
        ("cnn", SHAPES["unet"], f"{ONE} pixel; allowed here: unet, module:factory"),
        ("unet", IMAGES, "gives one answer per pixel, and the task takes one per sample; allowed here: small, mlp,"),
        ("mlp", SHAPES["text, next token"], f"{ONE} token; allowed here: text, module:factory"),
        ("text", SHAPES["unet"], "gives one answer per sample or per token, and the task takes one per pixel; allow"),
        (
            "unet",
            ModelShape((3, 7, 9), 4, output_shape=(4, 7, 9)),
            "must have inputs (channels, height, width) of at least 8x8 pixels (got the shape (3, 7, 9)); allowed here:"
            " module:factory",
        ),
    ],
)
def test_a_model_for_other_data_or_another_task_is_refused(name: str, shape: ModelShape, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"model.name: {name!r} {message}")):
        build_model(name, {}, shape, 0)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("text", ModelShape((4,), 3, vocabulary=10**14, examples=IDS)),
        ("text", ModelShape((10**6,), 3, vocabulary=6, examples=torch.zeros(1, 10**6, dtype=torch.int64))),
        ("tabular", ModelShape((), 3, categories=(3, 10**14), examples=TABLE)),
        ("unet", ModelShape((3, 10**6, 10**6), 4, output_shape=(4, 10**6, 10**6))),
    ],
)
def test_a_model_that_does_not_fit_into_memory_is_refused(name: str, shape: ModelShape) -> None:
    with pytest.raises(InputError, match=f"model.name: '{name}' .*memory"):
        build_model(name, {}, shape, 0)


def test_a_users_factory_gets_the_sizes_of_its_data() -> None:
    def factory(numbers: int, categories: tuple[int, ...], output_shape: tuple[int, ...]) -> None: ...

    expected = {"numbers": 2, "categories": (3, 7), "output_shape": (3,)}
    assert SHAPES["tabular"].arguments_for(factory) == expected
    assert MODELS["tabular"].fits(SHAPES["tabular"])
