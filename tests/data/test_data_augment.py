"""The batched augmentation against one that treats image by image, as it would be written down."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsol.config.tables import DataSettings
from fedsol.data.batches import augment, normalize
from fedsol.data.catalog import with_image_settings
from fedsol.data.types import UNSCALED, Augmentation, Dataset, Split
from fedsol.errors import InputError


def dataset_with(augmentation: Augmentation, stored: int = 3, channels: int = 3) -> Dataset:
    empty = Split(torch.zeros(0, stored, 8, 8, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64))
    mean, std = (0.5, 0.4, 0.3)[:stored], (0.2, 0.25, 0.3)[:stored]
    return Dataset("x", empty, empty, 10, mean, std, augmentation, channels)


def one_by_one(images: torch.Tensor, dataset: Dataset, generator: torch.Generator) -> np.ndarray:
    """Pad, crop, flip, normalize and cut out each image on its own, from the same draws."""
    choices = torch.rand(5, len(images), generator=generator, dtype=torch.float64).numpy()
    wanted, results = dataset.augmentation, []
    for index, image in enumerate(images.numpy()):
        _, height, width = image.shape
        mode = {"zero": "constant", "reflect": "reflect"}[wanted.pad_mode]
        padded = np.pad(image, ((0, 0), (wanted.pad, wanted.pad), (wanted.pad, wanted.pad)), mode=mode)
        top, left = (int(choices[k, index] * (2 * wanted.pad + 1)) for k in (0, 1))
        image = padded[:, top : top + height, left : left + width]
        if wanted.flip and choices[2, index] < 0.5:
            image = image[:, :, ::-1]
        mean, std = (np.array(values)[:, None, None] for values in (dataset.mean, dataset.std))
        result = (image / 255 - mean) / std
        if wanted.cutout:
            row, column, half = int(choices[3, index] * height), int(choices[4, index] * width), wanted.cutout // 2
            rows = slice(max(row - half, 0), min(row + half, height))
            columns = slice(max(column - half, 0), min(column + half, width))
            result[:, rows, columns] = 0
        results.append(np.repeat(result, dataset.channels // len(result), axis=0))
    return np.stack(results).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 6),
    size=st.tuples(st.integers(5, 12), st.integers(5, 12)),
    pad=st.integers(0, 4),
    pad_mode=st.sampled_from(["zero", "reflect"]),
    flip=st.booleans(),
    cutout=st.sampled_from([0, 2, 6, 16]),
    stored=st.sampled_from([1, 3]),
)
def test_batched_equals_one_by_one(seed, count, size, pad, pad_mode, flip, cutout, stored) -> None:
    dataset = dataset_with(Augmentation(pad, pad_mode, flip, cutout), stored)
    images = torch.randint(0, 256, (count, stored, *size), dtype=torch.uint8, generator=torch.manual_seed(seed))
    before = images.clone()
    result = augment(images, dataset, torch.Generator().manual_seed(seed))
    expected = one_by_one(images, dataset, torch.Generator().manual_seed(seed))
    assert result.dtype == torch.float32
    assert result.is_contiguous()
    np.testing.assert_allclose(result.numpy(), expected, atol=2e-6)
    assert torch.equal(images, before), "the inputs are not changed"


def test_every_offset_flip_and_centre_occurs_equally_often() -> None:
    image = torch.arange(1, 82, dtype=torch.uint8).reshape(1, 1, 9, 9).expand(20_000, -1, -1, -1)
    generator = torch.Generator().manual_seed(0)
    plain = Dataset("x", *[Split(image[:1], torch.zeros(1).long())] * 2, 1, (0.0,), (1 / 255,), channels=1)
    shifted = augment(image, with_augmentation(plain, Augmentation(pad=4)), generator)
    centres = shifted[:, 0, 4, 4].long().bincount(minlength=82)[1:]
    assert (centres - 20_000 / 81).abs().max() < 6 * (20_000 / 81) ** 0.5
    flipped = augment(image, with_augmentation(plain, Augmentation(flip=True)), generator)
    assert abs((flipped[:, 0, 0, 0] == 9).sum().item() - 10_000) < 6 * 5000**0.5
    cut = augment(image, with_augmentation(plain, Augmentation(cutout=2)), generator)
    corner = (cut[:, 0, 0, 0] == 0).sum().item()
    assert abs(corner - 20_000 * 4 / 81) < 6 * (20_000 * 4 / 81) ** 0.5


def with_augmentation(dataset: Dataset, augmentation: Augmentation) -> Dataset:
    from dataclasses import replace

    return replace(dataset, augmentation=augmentation)


@pytest.mark.parametrize(
    "augmentation", [Augmentation(), Augmentation(pad=2), Augmentation(4, "reflect", True, 16), Augmentation(flip=True)]
)
def test_the_number_of_draws_does_not_depend_on_what_is_used(augmentation) -> None:
    generator, reference = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    augment(torch.zeros(7, 3, 8, 8, dtype=torch.uint8), dataset_with(augmentation), generator)
    torch.rand(5, 7, generator=reference, dtype=torch.float64)
    assert torch.equal(generator.get_state(), reference.get_state())


def test_global_random_state_is_neither_used_nor_changed() -> None:
    before = torch.random.get_rng_state()
    dataset = dataset_with(Augmentation(2, "zero", True, 4))
    augment(torch.zeros(7, 3, 8, 8, dtype=torch.uint8), dataset, torch.Generator())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_normalize_only_normalizes() -> None:
    images = torch.randint(0, 256, (4, 1, 5, 5), dtype=torch.uint8, generator=torch.manual_seed(0))
    result = normalize(images, dataset_with(Augmentation(4, "zero", True, 16), stored=1))
    assert result.shape == (4, 3, 5, 5)
    assert torch.allclose(result[:, 1], (images[:, 0] / 255 - 0.5) / 0.2, atol=2e-6)


def test_floats_are_used_as_they_are() -> None:
    features = torch.randn(4, 7, generator=torch.manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    dataset = replace(dataset_with(Augmentation(4)), mean=UNSCALED[0], std=UNSCALED[1])
    assert augment(features, dataset, generator) is features
    assert normalize(features, dataset) is features
    assert torch.equal(generator.get_state(), torch.Generator().manual_seed(0).get_state())


@pytest.mark.parametrize(
    ("inputs", "changes", "message"),
    [
        (
            torch.zeros(1, 5),
            {"channels": 3},
            r"data\.channels, data\.augmentation: must not be set, as 'x' has no images",
        ),
        (torch.zeros(1, 5), {"augmentation": {"flip": True}}, r"data\.channels, data\.augmentation: must not be set"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), {"channels": 1}, r"data\.channels: must be 3, as in .*\(got 1\)"),
    ],
)
def test_settings_of_images_that_do_not_fit_the_data(inputs, changes, message) -> None:
    split = Split(inputs, torch.zeros(1, dtype=torch.int64))
    dataset = Dataset("x", split, split, 10, (0.5,), (0.5,), channels=3)
    with pytest.raises(InputError, match=message):
        with_image_settings(dataset, DataSettings(name="x", **changes))
