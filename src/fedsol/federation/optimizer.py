"""The client's optimizer by its name: its class in torch.optim, its arguments, and whether it accepts them.

`Experiment` does not check it, so that the configuration does not import torch; `build_federation` does.
"""

import inspect
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
    parameter.grad = torch.zeros_like(parameter)
    try:
        make_optimizer(settings, [parameter], settings.lr).step()
    except InputError:
        raise
    except Exception as error:  # torch's optimizers check their arguments in many ways
        options = f" with {settings.optimizer_options!r}" if settings.optimizer_options else ""
        raise InputError(f"client.optimizer: cannot use {settings.optimizer!r}{options}: {failure}: {error}") from error


def make_optimizer(settings: ClientSettings, parameters: list[Tensor], lr: float) -> torch.optim.Optimizer:
    """Return the local optimizer, new for every client and round."""
    return optimizer_class(settings.optimizer)(parameters, **optimizer_arguments(settings, lr))


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
