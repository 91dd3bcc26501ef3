"""Float inputs of mean 0 and standard deviation 1 (`data.standardize`), by the statistics of the training samples."""

from dataclasses import replace

import torch
from torch import Tensor

from fedsol.data.types import Dataset
from fedsol.errors import InputError

SAMPLES_PER_BLOCK = 4096


def standardized(dataset: Dataset, source: str) -> Dataset:
    """Return the dataset with the mean and std of its training samples: per column, or per channel of arrays."""
    require_floats(dataset, source)
    assert isinstance(dataset.train.inputs, Tensor)
    mean, std = float_statistics(dataset.train.inputs)
    return replace(dataset, mean=mean, std=std)


def require_floats(dataset: Dataset, source: str) -> None:
    """Raise `InputError` unless the inputs are one array of floats that nothing else scales."""
    inputs, reason = dataset.train.inputs, ""
    if dataset.columns is not None:
        reason = "the numbers of a table always are"
    elif not isinstance(inputs, Tensor):
        reason = f"its inputs are several ({', '.join(inputs)}); standardize them before"
    elif inputs.dtype == torch.uint8:
        reason = "images of uint8 always are"
    elif inputs.dtype != torch.float32:
        reason = "its inputs are the ids of tokens"
    if reason:
        raise InputError(f"data.standardize: must not be set for {source}: {reason}")


def float_statistics(inputs: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation along the first axis of a sample: of columns (N, F), channels (N, C, …).

    They are summed block by block, so memory-mapped inputs are never in memory as a whole.
    """
    samples, columns = inputs.shape[:2]
    blocks = torch.split(inputs.reshape(samples, columns, -1), SAMPLES_PER_BLOCK)
    count = samples * blocks[0].shape[2]
    mean = sum((block.double().sum(dim=(0, 2)) for block in blocks), torch.zeros(())) / count
    squares = ((block.double() - mean[:, None]).square().sum(dim=(0, 2)) for block in blocks)
    std = (sum(squares, torch.zeros(())) / count).sqrt()
    std = torch.where(std > 0, std, 1.0)  # a constant column is only shifted
    return tuple(mean.tolist()), tuple(std.tolist())
