"""Small things to test with."""

import torch
from torch import Tensor, nn

from fedsol.algorithms.task import Task, task_loss
from fedsol.core.weights import Weights, clone, pick
from fedsol.data.batches import Batch
from fedsol.models.split import SplitModel


class TwoLayers(nn.Module):
    """A body of one linear layer and a head, in double precision, small enough for hand calculation."""

    def __init__(self, inputs: int = 2, hidden: int = 2, classes: int = 2, bias: bool = False) -> None:
        super().__init__()
        self.body = nn.Linear(inputs, hidden, bias=bias)
        self.head = nn.Linear(hidden, classes, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(inputs)))


class OnlyHead(nn.Module):
    """Logits are the head's weights times the input: with input 1 the logits are the weights."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(inputs, classes, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs)


class WithBatchNorm(nn.Module):
    """A body with a batch norm that keeps running statistics."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU())
        self.head = nn.Linear(5, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(inputs))


def split(model: nn.Module, shape: tuple[int, ...], head: str = "head") -> SplitModel:
    """The functional view of a model."""
    dtype = next(model.parameters()).dtype
    return SplitModel(model, head, torch.randn(2, *shape, dtype=dtype, generator=torch.Generator().manual_seed(0)))


def task_for(model: SplitModel, anchor: Weights, **options: object) -> Task:
    """A task whose anchor are the given weights."""
    buffers = pick(anchor, model.buffers)
    defaults = {"lr": 0.1, "local_loss": task_loss}
    return Task(
        model=model,
        anchor=pick(anchor, model.names),
        anchor_buffers=buffers,
        buffers=clone(buffers),
        **{**defaults, **options},
    )


def moved_from(anchor: Weights, seed: int = 1, size: float = 0.1) -> Weights:
    """Weights near an anchor."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: tensor + size * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
        for name, tensor in anchor.items()
    }


def random_batch(shape: tuple[int, ...], classes: int, count: int = 6, dtype=torch.float32, seed: int = 2) -> Batch:
    """Random inputs with random labels."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, *shape, generator=generator, dtype=dtype)
    return Batch(inputs, torch.randint(classes, (count,), generator=generator))
