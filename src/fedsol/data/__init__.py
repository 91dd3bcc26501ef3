"""Data: datasets by name or of one's own, and the batches made of them."""

from fedsol.data.augmentation import normalise
from fedsol.data.batches import Batch, evaluation_batches
from fedsol.data.catalog import SPECS, find_spec, load
from fedsol.data.own import load_custom
from fedsol.data.types import Augmentation, Dataset, DatasetSpec, Split

__all__ = [
    "SPECS",
    "Augmentation",
    "Batch",
    "Dataset",
    "DatasetSpec",
    "Split",
    "evaluation_batches",
    "find_spec",
    "load",
    "load_custom",
    "normalise",
]
