"""The networks: shapes, hand-computed parameter counts, initialization, and SL-ViT's own pieces."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedsol.errors import InputError
from fedsol.models import MODELS, ModelShape
from fedsol.models.basic import CNN, MLP, Small
from fedsol.models.build import build_model
from fedsol.models.resnet import ResNet18
from fedsol.models.slvit import LocalitySelfAttention, ShiftedPatches, SLViT, shifted
from fedsol.models.vgg import VGG11


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def convolution(inputs: int, outputs: int, side: int, bias: bool = True) -> int:
    return outputs * (inputs * side * side + bias)


def linear(inputs: int, outputs: int) -> int:
    return outputs * (inputs + 1)


@pytest.mark.parametrize("name", [name for name, spec in MODELS.items() if spec.fits(ModelShape((1, 8, 8), 7))])
@pytest.mark.parametrize("input_shape", [(1, 8, 8), (3, 28, 28), (3, 32, 32), (3, 28, 32)])
def test_logits_have_one_column_per_class(name: str, input_shape: tuple[int, ...]) -> None:
    model = MODELS[name].build({}, ModelShape(input_shape, 7)).eval()
    inputs = torch.randn(2, *input_shape)
    with torch.no_grad():
        features = model.features(inputs)
        logits = model(inputs)
        assert torch.equal(model.head(features), logits)
    assert logits.shape == (2, 7)
    assert isinstance(model.head, nn.Linear)
    assert features.shape == (2, model.head.in_features)


@pytest.mark.parametrize(("name", "width"), [("vgg11", 512), ("resnet18", 512), ("slvit", 192)])
def test_larger_images(name: str, width: int) -> None:
    model = MODELS[name].build({}, ModelShape((3, 64, 64), 100)).eval()
    with torch.no_grad():
        assert model.features(torch.randn(1, 3, 64, 64)).shape == (1, width)


def test_mlp_takes_vectors() -> None:
    assert MLP((13,), 4)(torch.randn(5, 13)).shape == (5, 4)


def test_parameters_of_cnn() -> None:
    # 32·(3·25+1) + 64·(32·25+1) + 512·(64·8·8+1) + 10·513
    assert count(CNN((3, 32, 32), 10)) == 2_432 + 51_264 + 2_097_664 + 5_130 == 2_156_490
    # 28 → 14 → 7: 64·7·7 = 3136 features into the hidden layer
    assert count(CNN((1, 28, 28), 10)) == 832 + 51_264 + 512 * 3_137 + 5_130


def test_parameters_of_small_models() -> None:
    assert count(Small((1, 8, 8), 10)) == 16 * 10 + linear(16 * 4 * 4, 64) + linear(64, 10) == 17_258
    assert count(Small((1, 8, 8), 10, width=4, hidden=8)) == 4 * 10 + linear(64, 8) + linear(8, 10)
    assert count(MLP((64,), 10)) == linear(64, 64) + linear(64, 64) + linear(64, 10)
    assert count(MLP((1, 8, 8), 10, hidden=32)) == linear(64, 32) + linear(32, 32) + linear(32, 10)


@pytest.mark.parametrize("side", [28, 32])
def test_parameters_of_vgg11(side: int) -> None:
    widths = [3, 64, 128, 256, 256, 512, 512, 512, 512]
    convolutions = sum(convolution(a, b, 3) for a, b in itertools.pairwise(widths))
    assert convolutions == 9_220_480
    assert count(VGG11((3, side, side), 10)) == convolutions + 2 * linear(512, 512) + linear(512, 10)


def test_parameters_of_resnet18() -> None:
    assert count(ResNet18((3, 32, 32), 10)) == 11_173_962  # the known count for CIFAR-10
    for name in ("resnet18-batchstats", "resnet18-gn"):
        assert count(MODELS[name].build({}, ModelShape((3, 28, 28), 9))) == 11_173_962 - 513


def test_group_norm_has_32_groups_and_depends_on_no_other_sample() -> None:
    shape = ModelShape((3, 8, 8), 10)
    model = MODELS["resnet18-gn"].build({}, shape)
    norms = [layer for layer in model.modules() if isinstance(layer, nn.GroupNorm)]
    assert [layer.num_groups for layer in norms] == [32] * 20
    assert not dict(model.named_buffers())
    inputs = torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(model(inputs)[:2], model(inputs[:2]))
    two = MODELS["resnet18-gn"].build({"groups": 2}, shape)
    assert {layer.num_groups for layer in two.modules() if isinstance(layer, nn.GroupNorm)} == {2}
    for groups in (3, 128, True, "32"):
        with pytest.raises(InputError, match=r"model\.options\.groups: must be one of 1, 2, 4, 8, 16, 32, 64 \(got"):
            MODELS["resnet18-gn"].build({"groups": groups}, shape)


def test_parameters_of_slvit() -> None:
    patch = 5 * 3 * 8 * 8
    tokens = 2 * patch + linear(patch, 192) + 192 + 17 * 192
    attention = 2 * 192 + 1 + 3 * 768 * 192 + linear(768, 192)
    mlp = 2 * 192 + 2 * linear(192, 192)
    expected = tokens + 9 * (attention + mlp) + 2 * 192 + linear(192, 10)
    assert count(SLViT((3, 32, 32), 10)) == expected
    assert count(SLViT((3, 28, 28), 10, shift="axis")) == expected


def test_vgg11_starts_from_the_stated_distribution() -> None:
    torch.manual_seed(1)
    model = VGG11((3, 32, 32), 10)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            expected = math.sqrt(2 / (9 * layer.out_channels))
            standard_error = 1 / math.sqrt(2 * layer.weight.numel())
            assert layer.weight.std().item() / expected == pytest.approx(1, abs=5 * standard_error)
            assert abs(layer.weight.mean().item()) < 5 * expected / math.sqrt(layer.weight.numel())
            assert not layer.bias.any()


def test_vgg11_and_slvit_resize_28_to_32() -> None:
    image = torch.full((1, 3, 28, 28), 0.5)  # resizing a constant image gives a constant image
    larger = torch.full((1, 3, 32, 32), 0.5)
    for make in (VGG11, SLViT):
        model = make((3, 28, 28), 10).eval()
        torch.testing.assert_close(model(image), model(larger))


def test_resnet18_halves_the_maps_three_times() -> None:
    model = ResNet18((3, 32, 32), 10)
    maps = model.norm(model.stem(torch.randn(2, 3, 32, 32)))
    sizes = [maps.shape[1:]]
    for block in model.blocks:
        maps = block(maps)
        sizes.append(maps.shape[1:])
    assert [tuple(size) for size in sizes[::2]] == [
        (64, 32, 32),
        (64, 32, 32),
        (128, 16, 16),
        (256, 8, 8),
        (512, 4, 4),
    ]


def test_batch_norm_with_and_without_running_statistics() -> None:
    shape = ModelShape((3, 8, 8), 10)
    with_statistics = MODELS["resnet18"].build({}, shape)
    without = MODELS["resnet18-batchstats"].build({}, shape).eval()
    assert len(dict(with_statistics.named_buffers())) == 20 * 3
    assert not dict(without.named_buffers())
    inputs = torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        assert not torch.allclose(without(inputs)[:2], without(inputs[:2]))  # depends on the batch
        torch.testing.assert_close(with_statistics.eval()(inputs)[:2], with_statistics(inputs[:2]))


def naive_shift(image: Tensor, down: int, right: int) -> Tensor:
    moved = torch.zeros_like(image)
    _, height, width = image.shape
    for row in range(height):
        for column in range(width):
            if 0 <= row - down < height and 0 <= column - right < width:
                moved[:, row, column] = image[:, row - down, column - right]
    return moved


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(5, 9), st.integers(5, 9), st.integers(-4, 4), st.integers(-4, 4))
def test_shift_moves_and_fills_with_zero(channels: int, height: int, width: int, down: int, right: int) -> None:
    image = torch.arange(1.0, 1 + channels * height * width).view(channels, height, width)
    assert torch.equal(shifted(image[None], down, right)[0], naive_shift(image, down, right))


@pytest.mark.parametrize(
    ("shift", "moves"),
    [
        ("diagonal", [(-2, -2), (-2, 2), (2, -2), (2, 2)]),
        ("axis", [(-1, 0), (1, 0), (0, -1), (0, 1)]),
    ],
)
def test_tokens_are_the_patches_of_the_image_and_its_shifted_copies(shift: str, moves: list[tuple[int, int]]) -> None:
    tokens = ShiftedPatches(channels=2, patch=4, dim=6, shift=shift)
    image = torch.randn(2, 8, 12)
    stacked = torch.cat([image, *(naive_shift(image, down, right) for down, right in moves)])
    patches = [stacked[:, row : row + 4, column : column + 4].flatten() for row in (0, 4) for column in (0, 4, 8)]
    expected = tokens.embed(tokens.norm(torch.stack(patches)))
    torch.testing.assert_close(tokens(image[None])[0], expected)


def naive_attention(layer: LocalitySelfAttention, tokens: Tensor, factor: float) -> Tensor:
    queries, keys, values = layer.to_qkv(tokens).chunk(3, dim=-1)
    size = queries.shape[-1] // layer.heads
    rows = []
    for token in range(len(tokens)):
        others = [other for other in range(len(tokens)) if other != token]
        heads = []
        for head in range(layer.heads):
            part = slice(head * size, (head + 1) * size)
            scores = torch.stack([queries[token, part] @ keys[other, part] for other in others]) * factor
            heads.append(scores.softmax(dim=0) @ values[others, part])
        rows.append(torch.cat(heads))
    return layer.to_output(torch.stack(rows))


@pytest.mark.parametrize("factor", [None, 2.0])
def test_no_token_attends_to_itself(factor: float | None) -> None:
    layer = LocalitySelfAttention(dim=6, heads=2, dim_head=4, tokens=5)
    if factor is not None:
        with torch.no_grad():
            layer.log_temperature.fill_(math.log(factor))
    tokens = torch.randn(3, 5, 6)
    expected = torch.stack([naive_attention(layer, one, factor or 4**-0.5) for one in tokens])
    torch.testing.assert_close(layer(tokens), expected)
    attention = layer.attention(torch.randn(2, 5, 4), torch.randn(2, 5, 4))
    assert not attention.diagonal(dim1=-2, dim2=-1).any()
    torch.testing.assert_close(attention.sum(-1), torch.ones(2, 5))


def test_slvit_starts_at_the_usual_temperature_and_its_mask_is_no_weight() -> None:
    model = SLViT((3, 32, 32), 10, depth=2)
    temperatures = [w for name, w in model.named_parameters() if name.endswith("log_temperature")]
    assert [temperature.exp().item() for temperature in temperatures] == pytest.approx([1 / 8] * 2)
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("make", [CNN, Small, SLViT])
def test_second_derivatives_exist(make: Callable[..., nn.Module]) -> None:
    options = {"depth": 1, "dim": 16} if make is SLViT else {}
    model = make((3, 8, 8), 3, **options)
    weights = list(model.parameters())
    loss = nn.functional.cross_entropy(model(torch.randn(4, 3, 8, 8)), torch.tensor([0, 1, 2, 0]))
    gradients = torch.autograd.grad(loss, weights, create_graph=True)
    products = torch.autograd.grad(sum(g.square().sum() for g in gradients), weights)
    assert all(product.isfinite().all() for product in products)


def test_pooling_before_the_activation_is_bitwise_pooling_after_it():
    """The paper has convolution, ReLU, pooling; the order of the last two changes neither values nor gradients."""
    shape = ModelShape((3, 16, 16), 10)
    ours, theirs = (build_model("cnn", {}, shape, 0) for _ in range(2))
    layers = list(theirs.body)
    for i in [i for i, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]:
        layers[i], layers[i + 1] = layers[i + 1], layers[i]
    images = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    images = images.contiguous(memory_format=torch.channels_last)
    found, expected = ours(images), theirs.head(nn.Sequential(*layers)(images))
    assert torch.equal(found, expected)
    gradients = torch.autograd.grad(found.square().sum(), list(ours.parameters()))
    for one, other in zip(
        gradients, torch.autograd.grad(expected.square().sum(), list(theirs.parameters())), strict=True
    ):
        assert torch.equal(one, other)
