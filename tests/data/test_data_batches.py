"""Batches for training and for evaluation."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsol.data.batches import batches, evaluation_batches
from fedsol.data.catalog import load
from fedsol.data.types import Augmentation, Dataset, Split


def numbered(count: int) -> Dataset:
    """Float features that are their own index, so that batches show which samples they hold."""
    split = Split(torch.arange(count, dtype=torch.float32)[:, None], torch.arange(count))
    return Dataset("numbered", split, split, max(count, 1), (0.0,), (1.0,), channels=1)


@settings(max_examples=50, deadline=None)
@given(count=st.integers(0, 30), batch_size=st.integers(1, 12), epochs=st.integers(0, 3), seed=st.integers(0, 99))
def test_each_epoch_holds_every_sample_once(count, batch_size, epochs, seed) -> None:
    dataset = numbered(40)
    indices = torch.randperm(40, generator=torch.manual_seed(seed))[:count]
    generator = torch.Generator().manual_seed(seed)
    found = list(batches(dataset, indices, batch_size, epochs, generator, "cpu"))
    per_epoch = -(-count // batch_size)
    assert len(found) == epochs * per_epoch
    for epoch in range(epochs):
        part = found[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert [len(batch) for batch in part[:-1]] == [batch_size] * max(per_epoch - 1, 0)
        assert sorted(label for batch in part for label in batch.labels.tolist()) == sorted(indices.tolist())
        assert all(torch.equal(batch.inputs[:, 0].long(), batch.labels) for batch in part)


def test_epochs_differ_and_a_seed_repeats_them() -> None:
    dataset = numbered(30)

    def order(seed: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed)
        found = batches(dataset, torch.arange(30), 30, 2, generator)
        return [batch.labels.tolist() for batch in found]

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(0)[0] != order(0)[1]


def test_training_images_are_augmented_and_evaluation_images_are_not() -> None:
    images = torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8, generator=torch.manual_seed(0))
    split = Split(images, torch.arange(20))
    dataset = Dataset("x", split, split, 20, (0.0,) * 3, (1.0,) * 3, Augmentation(pad=2, flip=True, cutout=4))
    trained = next(batches(dataset, torch.arange(20), 20, 1, torch.Generator().manual_seed(0)))
    tested = next(evaluation_batches(split, dataset, 20))
    assert torch.allclose(tested.inputs, images / 255, atol=1e-6)
    assert not torch.allclose(trained.inputs, images[trained.labels] / 255, atol=1e-3)


def test_images_are_normalized_once_or_batch_by_batch_to_the_same_batches(monkeypatch, tmp_path) -> None:
    dataset = load("digits", tmp_path)

    def found() -> list[tuple[torch.Tensor, torch.Tensor]]:
        generator = torch.Generator().manual_seed(0)
        return [(one.inputs, one.labels) for one in batches(dataset, torch.arange(100, 130), 7, 3, generator)]

    at_once = found()
    monkeypatch.setattr("fedsol.data.batches.NORMALIZED_AT_ONCE", 0)
    for (inputs, labels), (others, other_labels) in zip(at_once, found(), strict=True):
        assert torch.equal(inputs, others)
        assert torch.equal(labels, other_labels)


def test_evaluation_keeps_the_order(tmp_path) -> None:
    dataset = load("digits", tmp_path)
    found = list(evaluation_batches(dataset.test, dataset, 100))
    assert [len(batch) for batch in found] == [100, 100, 100, 60]
    assert torch.equal(torch.cat([batch.labels for batch in found]), dataset.test.labels)
    chosen = torch.tensor([5, 3, 200])
    (batch,) = evaluation_batches(dataset.test, dataset, 100, indices=chosen)
    assert torch.equal(batch.labels, dataset.test.labels[chosen])
    assert batch.inputs.shape == (3, 1, 8, 8)
