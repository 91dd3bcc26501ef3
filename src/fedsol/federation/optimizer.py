"""The client's optimizer by its name: its class in torch.optim, its arguments, and whether it accepts them.

`Experiment` does not check it, so that the configuration does not import torch; `build_federation` does.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fedsol.config.tables import ClientSettings, unknown_name
from fedsol.core.weights import Weights
from fedsol.errors import InputError


def check_optimizer(settings: ClientSettings) -> None:
    """Raise `InputError` if the optimizer does not exist, does not take its options, or cannot make a plain step."""
    given = sorted(settings.optimizer_options.keys() & {"lr", "momentum", "weight_decay"})
    if given:
        raise InputError(f"client.optimizer_options: must not have {given[0]!r}; set client.{given[0]}")
    _try_step(settings, torch.zeros(2, 2), "a plain step fails")


def check_optimizer_on(settings: ClientSettings, weights: Weights) -> None:
    """Raise `InputError` if the optimizer refuses one of the model's weights: one of every number of dimensions."""
    smallest = sorted(weights.items(), key=lambda item: item[1].numel(), reverse=True)
    for name, tensor in {tensor.ndim: (name, tensor) for name, tensor in smallest}.values():
        _try_step(settings, torch.zeros_like(tensor), f"it refuses {name!r} of shape {tuple(tensor.shape)}")


def _try_step(settings: ClientSettings, parameter: Tensor, failure: str) -> None:
    try:
        make_optimizer(settings, {"": parameter}, settings.lr).step({"": torch.zeros_like(parameter)})
    except InputError:
        raise
    except Exception as error:  # torch's optimizers check their arguments in many ways
        options = f" with {settings.optimizer_options!r}" if settings.optimizer_options else ""
        raise InputError(f"client.optimizer: cannot use {settings.optimizer!r}{options}: {failure}: {error}") from error


class LocalOptimizer(ABC):
    """Changes the weights that it was made with in place, step by step."""

    def __init__(self, settings: ClientSettings, weights: Weights, lr: float) -> None:
        self._names, self._weights = tuple(weights), list(weights.values())
        self._settings, self._lr = settings, lr

    def step(self, gradients: Weights) -> None:
        """Take a step along gradients by name; those of other weights are ignored."""
        given = [laid_out_like(w, gradients[n], n) for n, w in zip(self._names, self._weights, strict=True)]
        if self._settings.clip_norm is not None:
            self._clip(given, self._settings.clip_norm)
        self._apply(given)

    def decay(self, factor: float) -> None:
        """Multiply the learning rate of the next steps."""
        self._lr *= factor

    @abstractmethod
    def _apply(self, gradients: list[Tensor]) -> None: ...

    def _clip(self, gradients: list[Tensor], longest: float) -> None:
        with _given(self._weights, gradients):
            torch.nn.utils.clip_grad_norm_(self._weights, longest)


class _AnyOptimizer(LocalOptimizer):
    """An optimizer of torch.optim."""

    def __init__(self, settings: ClientSettings, weights: Weights, lr: float) -> None:
        super().__init__(settings, weights, lr)
        self._optimizer = optimizer_class(settings.optimizer)(self._weights, **optimizer_arguments(settings, lr))

    def decay(self, factor: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] *= factor

    def _apply(self, gradients: list[Tensor]) -> None:
        with _given(self._weights, gradients):
            self._optimizer.step()


class _SGD(LocalOptimizer):
    """The kernel of `torch.optim.SGD(fused=True)` alone.

    That class takes six times as long for a small model as its kernel, and making one imports torch's compiler.
    """

    def __init__(self, settings: ClientSettings, weights: Weights, lr: float) -> None:
        super().__init__(settings, weights, lr)
        self._moments = [torch.empty_like(weight) for weight in self._weights] if settings.momentum else []
        self._is_first_step = bool(self._moments)

    def _apply(self, gradients: list[Tensor]) -> None:
        torch._fused_sgd_(
            self._weights,
            gradients,
            self._moments,
            weight_decay=self._settings.weight_decay,
            momentum=self._settings.momentum,
            lr=self._lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=self._is_first_step,
        )
        self._is_first_step = False


@contextmanager
def _given(weights: list[Tensor], gradients: list[Tensor]) -> Iterator[None]:
    """Set `grad` of the weights inside the block, where torch looks for gradients."""
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient
    try:
        yield
    finally:
        for weight in weights:
            weight.grad = None


def laid_out_like(weight: Tensor, gradient: Tensor, name: str) -> Tensor:
    """Return the gradient of a weight in the memory layout of the weight itself.

    A fused optimizer reads both side by side and ignores their strides, but the gradient of a channels-last convolution
    has different strides than its weight. (`backward()` corrects that, `torch.autograd.grad` does not.)
    """
    if gradient.shape != weight.shape or gradient.dtype != weight.dtype:
        raise InputError(
            f"algorithm.name: the gradient of {name!r} must have its size and type, {tuple(weight.shape)} "
            f"{weight.dtype} (got {tuple(gradient.shape)} {gradient.dtype})"
        )
    return gradient if gradient.stride() == weight.stride() else torch.empty_like(weight).copy_(gradient)


def make_optimizer(settings: ClientSettings, weights: Weights, lr: float) -> LocalOptimizer:
    """Return the local optimizer of some weights, new for every client and round."""
    is_plain_sgd = settings.optimizer.lower() == "sgd" and not settings.optimizer_options
    kinds = {(weight.dtype, weight.device) for weight in weights.values()}  # the kernel takes one
    return (_SGD if is_plain_sgd and len(kinds) == 1 else _AnyOptimizer)(settings, weights, lr)


@cache
def optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """Return the class of torch.optim with this name, whatever its case."""
    classes = {
        key.lower(): value
        for key, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and value is not torch.optim.Optimizer
    }
    if name.lower() not in classes:
        raise unknown_name("client.optimizer", name, classes)
    return classes[name.lower()]


def optimizer_arguments(settings: ClientSettings, lr: float) -> dict[str, Any]:
    """Return the arguments of the optimizer, except the parameters."""
    accepted = inspect.signature(optimizer_class(settings.optimizer)).parameters
    arguments: dict[str, Any] = {"lr": lr}
    if "weight_decay" in accepted:
        arguments["weight_decay"] = settings.weight_decay
    if settings.optimizer.lower() == "sgd":
        arguments["momentum"] = settings.momentum
    if "fused" in accepted and "foreach" not in settings.optimizer_options:
        arguments["fused"] = True  # one pass over the weights: half the time of a step on the CPU
    return {**arguments, **settings.optimizer_options}
