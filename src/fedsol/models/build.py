"""Builds models, finds their heads, and runs them as functions of their weights.

A model is fedsol's own, by name, or any `nn.Module` that a user's `module:factory` returns.
"""

from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from fedsol.config.tables import unknown_name
from fedsol.core.imports import import_object
from fedsol.errors import InputError
from fedsol.models import MODELS, ModelShape, ModelSpec
from fedsol.models.split import SplitModel, evaluating

__all__ = ["MODELS", "ModelShape", "ModelSpec", "build_model", "build_split_model", "find_head"]


def build_model(
    name: str, options: Mapping[str, object], shape: ModelShape, generator: torch.Generator | int
) -> nn.Module:
    """The model `name` (or `module:factory`), initialised from a seed, or a seed drawn from a generator.

    A user's factory is called with the options, and with `input_shape`, `classes` or `num_classes` if it has
    parameters of these names. Torch's global random state is the same afterwards as before.
    """
    seed = generator if isinstance(generator, int) else _drawn_seed(generator)
    with torch.random.fork_rng(devices=[]):  # torch initialises layers from its global generator
        torch.default_generator.manual_seed(seed)
        if name in MODELS:
            return MODELS[name].build(options, shape)
        if ":" in name:
            return _build_users(name, options, shape)
    raise unknown_name("model.name", name, [*MODELS, "module:factory"])


def build_split_model(
    name: str,
    options: Mapping[str, object],
    shape: ModelShape,
    generator: torch.Generator | int,
    head: str | None = None,
    device: torch.device | str = "cpu",
    autocast: torch.dtype | None = None,
) -> SplitModel:
    """Builds a model, finds its head and makes the functional view of both, on a device and in a precision."""
    model = build_model(name, options, shape, generator).to(device)
    probe = shape.probe().to(device)
    return SplitModel(model, find_head(model, head, probe), probe, autocast)


def _drawn_seed(generator: torch.Generator) -> int:
    return int(torch.randint(2**63 - 1, (), generator=generator, device=generator.device))


def _build_users(reference: str, options: Mapping[str, object], shape: ModelShape) -> nn.Module:
    factory = import_object(reference, "model.name")
    if not callable(factory):
        kind = type(factory).__name__
        raise InputError(f"model.name: {reference!r} is of type {kind}; it must be a function or class")
    try:
        model = factory(**{**shape.arguments_for(factory), **options})
    except Exception as error:  # a user's code may raise anything
        raise _failed(reference, f"with the options {dict(options)}", error) from error
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise InputError(f"model.name: {reference!r} returned type {kind}; it must return a torch.nn.Module")
    try:
        with evaluating(model):
            output = model(shape.probe())
    except Exception as error:
        raise _failed(reference, f"on inputs of shape {(2, *shape.input_shape)}", error) from error
    _check_output(reference, output, (2, shape.classes))
    return model


def _failed(reference: str, when: str, error: Exception) -> InputError:
    return InputError(f"model.name: {reference!r} failed {when}: {type(error).__name__}: {error}")


def _check_output(reference: str, output: object, expected: tuple[int, int]) -> None:
    found = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"type {type(output).__name__}"
    if found != f"shape {expected}":
        raise InputError(
            f"model.name: {reference!r} must turn 2 inputs into logits of shape {expected} (2 x classes),"
            f" but its output is of {found}"
        )
    if not bool(torch.isfinite(cast(Tensor, output)).all()):
        raise InputError(f"model.name: {reference!r} answers NaN or infinity to standard normal inputs")


def find_head(model: nn.Module, head: str | None, probe: Tensor) -> str:
    """Dotted path of the classifier head: `head` if given, else the last linear layer that runs.

    That layer must give the model's output.
    """
    linear = {path: module for path, module in model.named_modules() if isinstance(module, nn.Linear)}
    if head is not None:
        paths = {path for path, _ in model.named_modules(remove_duplicate=False)}
        if head in linear or (head and head in paths):
            return head
        known = ", ".join(linear) or "none"
        raise InputError(f"model.head: {head!r} is no part of the model; its linear layers are: {known}")
    ran, answer = _run_linear(model, linear, probe)
    if not ran:
        raise InputError("model.head: no linear layer runs in the model; name its classifier in model.head")
    path, output = ran[-1]
    if not torch.equal(output, answer):
        raise InputError(
            f"model.head: the last linear layer that runs, {path!r}, does not give the model's output; return"
            " its logits as they are (no softmax or log_softmax), or name the module that gives the model's"
            " output in model.head"
        )
    return path


def _run_linear(
    model: nn.Module, linear: Mapping[str, nn.Module], probe: Tensor
) -> tuple[list[tuple[str, Tensor]], Tensor]:
    """Paths and outputs of these layers in the order they run, and the model's output."""
    ran: list[tuple[str, Tensor]] = []

    def remember(path: str) -> Callable[..., None]:
        return lambda _module, _inputs, output: ran.append((path, output))

    hooks = [module.register_forward_hook(remember(path)) for path, module in linear.items()]
    try:
        with evaluating(model):
            return ran, model(probe)
    finally:
        for hook in hooks:
            hook.remove()
