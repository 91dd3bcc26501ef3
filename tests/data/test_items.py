"""Map-style datasets: what their items may be, and what is wrong with them."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from fedsol.config.tables import DataSettings
from fedsol.data.arrays import Source
from fedsol.data.own import dataset_from
from fedsol.errors import InputError


class Items(TorchDataset):
    """A map-style dataset of a list."""

    def __init__(self, items, classes=None):
        self.items = items
        if classes:
            self.classes = classes

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def made(train, test=None, kind="classification", fraction=None):
    data = train if test is None else {"train": train, "test": test}
    return dataset_from(data, DataSettings(), Source("mine:load", kind, fraction))


def refused(train, **options) -> str:
    with pytest.raises(InputError) as error:
        made(train, **options)
    return str(error.value)


def test_pairs_of_tensors():
    features = torch.arange(12.0).view(6, 2)
    train = TensorDataset(features[:4], torch.tensor([0, 1, 2, 0]))
    test = TensorDataset(features[4:], torch.tensor([1, 1]))
    dataset = made(train, test)
    assert torch.equal(dataset.train.inputs, features[:4])
    assert torch.equal(dataset.test.inputs, features[4:])
    assert (dataset.train.labels.tolist(), dataset.test.labels.tolist(), dataset.classes) == ([0, 1, 2, 0], [1, 1], 3)
    assert dataset.class_names == ()
    assert len(made(train, fraction=0.5).test) == 2


def test_images_of_pillow_and_names_of_classes():
    images = [Image.fromarray(np.full((5, 4, 3), value, dtype=np.uint8)) for value in (0, 100, 200)]
    dataset = made(Items([*zip(images, [0, 2, 0], strict=True)], classes=["cat", "cow", "dog"]), fraction=0.34)
    assert dataset.input_shape == (3, 5, 4)
    assert (dataset.class_names, dataset.classes) == (("cat", "cow", "dog"), 3)  # though no image shows a cow


def test_text_as_classes_is_numbered_in_sorted_order():
    items = [(np.zeros(2), "no"), (np.ones(2), "yes")] * 2
    dataset = made(Items(items), fraction=0.5)
    assert dataset.class_names == ("no", "yes")


def test_other_tasks():
    masks = Items([(torch.zeros(1, 4, 4), torch.full((4, 4), value)) for value in (0, 1, 2)])
    dataset = made(masks, masks, "segmentation")
    assert (dataset.train.labels.shape, dataset.classes) == ((3, 4, 4), 3)
    numbers = TensorDataset(torch.zeros(3, 2), torch.tensor([1.0, 3.0, 5.0]))
    assert made(numbers, numbers, "regression").target_mean == (3.0,)
    labels = TensorDataset(torch.zeros(3, 2), torch.tensor([[0, 1], [1, 1], [0, 0]]))
    assert made(labels, labels, "multilabel").train.labels.tolist() == [[0, 1], [1, 1], [0, 0]]


def test_named_inputs_of_different_length_are_padded():
    train = Items([{"input_ids": [5, 6], "label": 0}, {"input_ids": [7], "label": 1}])
    test = Items([{"input_ids": [1, 2, 3], "label": 1}])
    dataset = made(train, test)
    assert dataset.train.inputs["input_ids"].tolist() == [[5, 6, 0], [7, 0, 0]]
    assert dataset.train.inputs["attention_mask"].tolist() == [[1, 1, 0], [1, 0, 0]]
    assert dataset.test.inputs["attention_mask"].tolist() == [[1, 1, 1]]
    pairs = Items([(torch.tensor([5, 6]), 0), (torch.tensor([7]), 1)])
    assert made(pairs, pairs).train.inputs["input_ids"].tolist() == [[5, 6], [7, 0]]
    alike = Items([(torch.tensor([5, 6]), 0), (torch.tensor([7, 8]), 1)])
    assert made(alike, alike).train.inputs.tolist() == [[5, 6], [7, 8]]


def test_next_tokens():
    texts = Items([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
    dataset = made(texts, texts, "next-token")
    assert dataset.train.labels.tolist() == [[6, 7, -100], [9, -100, -100]]
    assert dataset.classes == 10
    shifted = Items([(torch.tensor([1, 2]), torch.tensor([2, 3]))] * 2)
    assert made(shifted, shifted, "next-token").train.labels.tolist() == [[2, 3], [2, 3]]


class Streamed(IterableDataset):
    def __iter__(self):
        yield 1


class Broken(Items):
    def __getitem__(self, index):
        raise OSError("no such scan")


PAIR = (torch.zeros(2), 0)


BAD = [
    ([(torch.zeros(2), 1), (torch.zeros(2), 2)], "labels must be 0, 1, 2 … (got 1 to 2); subtract 1"),
    ([(torch.zeros(2), -1), PAIR], "labels must be 0, 1, 2 … (got -1 to 0)"),
    ([], "has no items"),
    ([PAIR, (torch.zeros(3), 0)], "item 1: must be as in the first item, float32 of shape (2,) (got float32 of shape"),
    ([PAIR, (torch.zeros(2), [0, 1])], "item 1: the target must have the shape () (got (2,))"),
    ([torch.zeros(2)], "item 0 must be a pair of inputs and target, or a dict (got a Tensor)"),
    ([{"x": [1.0]}], "item 0 must have a target, named labels or label or target or targets (got x)"),
    (
        [{"x": [1.0], "y": [1.0], "label": 0}, {"x": [1.0], "label": 0}],
        "item 1 must have ['x', 'y'], as the first (got",
    ),
    ([{"text": "hello", "label": 0}], "item 0['text']: must be numbers (got <U5); tokenize text first"),
    ([(object(), 0)], "item 0: must be a tensor, an array or an image (got a object)"),
    ([(torch.tensor([np.nan]), 0), (torch.ones(1), 1)], "inputs must be finite in 32 bits (got 1 values"),
    (Broken([1]), "item 0 raised OSError: no such scan"),
    (Streamed(), "must be a map-style Dataset, with __getitem__ and __len__ (got a Streamed)"),
    (DataLoader(Items([PAIR])), "must be a map-style Dataset, with __getitem__ and __len__ (got a DataLoader)"),
]


@pytest.mark.parametrize(("items", "message"), BAD)
def test_bad_items_are_one_message(items, message):
    items = Items(items) if isinstance(items, list) else items
    assert refused(items, fraction=0.5).startswith(f"mine:load: {message}")


def test_a_test_set_is_required():
    assert refused(Items([PAIR] * 3)).startswith("mine:load: has no test samples; add them, or set data.test_fraction")
    assert refused(Items([PAIR]), test=Items([(torch.zeros(2), 1)])) == "mine:load: labels must be 0 to 0 (got 1 to 1)"
