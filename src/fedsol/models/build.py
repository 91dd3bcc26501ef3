"""Build models by name, or from a user's `module:factory` that returns any `nn.Module`, and find their heads."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedsol.config.model import ModelSettings
from fedsol.config.tables import unknown_name
from fedsol.core.imports import import_object
from fedsol.core.randomness import key_for, seeded_torch
from fedsol.core.user_code import describe_user_error
from fedsol.data.types import Inputs, tensors_of
from fedsol.errors import InputError
from fedsol.models import MODELS, ModelShape
from fedsol.models.lora import adapt
from fedsol.models.split import SplitModel, call, evaluating


def build_model(name: str, options: Mapping[str, object], shape: ModelShape, seed: int) -> nn.Module:
    """Return the model `name` (or `module:factory`), initialized from a seed.

    A user's factory is called with the options, and with the sizes of `ModelShape.arguments_for` that it has
    parameters for.
    """
    with seeded_torch(seed):
        if name in MODELS:
            return MODELS[name].build(options, shape)
        if ":" in name:
            return _build_users(name, options, shape)
    raise unknown_name("model.name", name, [*MODELS, "module:factory"])


def build_split_model(
    settings: ModelSettings,
    shape: ModelShape,
    seed: int,
    device: torch.device | str = "cpu",
    autocast: torch.dtype | None = None,
) -> SplitModel:
    """Return the model of `[model]` as a function of its weights, on a device and in a precision."""
    return split_model(build_settings(settings, shape, seed).to(device), settings.head, shape, autocast)


def autocast_of(precision: str) -> torch.dtype | None:
    """Return the type that passes are computed in, if it is not the weights' own."""
    return None if precision == "float32" else getattr(torch, precision)


def build_settings(settings: ModelSettings, shape: ModelShape, seed: int) -> nn.Module:
    """Return the model of `[model]`, with its adapters if it has any."""
    if settings.name is None:
        raise InputError("model.name: is missing")
    model = build_model(settings.name, settings.options, shape, seed)
    if settings.lora.rank is not None:
        probe = shape.probe()
        with seeded_torch(key_for(seed, "adapters")):
            adapt(model, find_head(model, settings.head, probe), settings.lora, probe)
    return model


def split_model(
    model: nn.Module, head: str | None, shape: ModelShape, autocast: torch.dtype | None = None
) -> SplitModel:
    """Return a model, on its device, as a function of its weights."""
    probe = placed(shape.probe(), next(model.parameters()).device)
    return SplitModel(model, find_head(model, head, probe), probe, autocast)


def _build_users(reference: str, options: Mapping[str, object], shape: ModelShape) -> nn.Module:
    where = f"model.name: {reference!r}"
    factory = import_object(reference, "model.name")
    if not callable(factory):
        raise InputError(f"{where} must be a function or class (got a {type(factory).__name__})")
    with _errors_named(f"{where} failed with the options {dict(options)}"):
        model = factory(**{**shape.arguments_for(factory), **options})
    if not isinstance(model, nn.Module):
        raise InputError(f"{where} must return a torch.nn.Module (got a {type(model).__name__})")
    probe = shape.probe()
    with _errors_named(f"{where} failed on inputs of {_described(probe)}"), evaluating(model):
        output = call(model, probe)
    expected = (2, *(shape.output_shape or (shape.classes,)))
    found = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
    if found != f"shape {expected}":
        size = " (2 x classes)" if len(expected) == 2 else ""
        raise InputError(f"{where} must turn 2 inputs into logits of shape {expected}{size} (got {found})")
    if not torch.isfinite(output).all():
        raise InputError(f"{where} must return finite logits for normal inputs (got NaN or infinity)")
    return model


def placed(inputs: Inputs, device: torch.device | str) -> Inputs:
    """Return inputs on a device."""
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def _described(inputs: Inputs) -> str:
    shapes = [f"{name} {tuple(tensor.shape)}".strip() for name, tensor in tensors_of(inputs).items()]
    return f"shape {', '.join(shapes)}"


@contextmanager
def _errors_named(failure: str) -> Iterator[None]:
    """Turn an error of a user's code, which may raise anything, into an `InputError`."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise InputError(f"{failure}: {describe_user_error(error)}") from error


def find_head(model: nn.Module, head: str | None, probe: Inputs) -> str:
    """Return the dotted path of the classifier: `head` if given, else the last layer that runs."""
    linear = {path: module for path, module in model.named_modules() if isinstance(module, nn.Linear)}
    if head is not None:
        paths = {path for path, _ in model.named_modules(remove_duplicate=False)}
        if head in linear or (head and head in paths):
            return head
        known = ", ".join(linear) or "none"
        raise InputError(f"model.head: {head!r} is not a module of the model; its linear layers are: {known}")
    ran: list[tuple[str, Tensor]] = []

    def record(path: str) -> Callable[..., None]:
        return lambda _module, _inputs, output: ran.append((path, output))

    maps = {path: module for path, module in model.named_modules() if isinstance(module, nn.Conv2d)}
    hooks = [module.register_forward_hook(record(path)) for path, module in {**linear, **maps}.items()]
    try:
        with evaluating(model):
            logits = call(model, probe)
    finally:
        for hook in hooks:
            hook.remove()
    if logits.ndim != 4:  # only a map can come from a convolution
        ran = [(path, output) for path, output in ran if path in linear]
    if not ran:
        raise InputError("model.head: no linear layer runs in the model; set model.head to its classifier")
    path, output = ran[-1]
    if not torch.equal(output, logits):
        raise InputError(
            f"model.head: the last linear layer that runs, {path!r}, does not give the model's output; return its"
            " logits (no softmax or log_softmax), or set model.head to the module that gives the model's output"
        )
    return path
