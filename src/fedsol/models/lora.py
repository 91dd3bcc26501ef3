"""Low-rank adapters of linear layers (`[model.lora]`).

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, equation 3: a frozen layer `W x` becomes
`W x + (alpha / rank) B A x`, where A is random and B is 0 at first, so that the model starts as it was.
"""

import math
import re
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from fedsol.config.model import LoraSettings
from fedsol.data.types import Inputs
from fedsol.errors import InputError
from fedsol.models.split import call, evaluating


class Adapted(nn.Linear):
    """A frozen linear layer with an adapter; its own weights keep their names."""

    def __init__(self, layer: nn.Linear, rank: int, alpha: float) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.factor = layer.in_features, layer.out_features, alpha / rank
        self.weight, self.bias = layer.weight, layer.bias
        self.lora_a = nn.Parameter(layer.weight.new_empty(rank, layer.in_features))
        self.lora_b = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name is torch's)
        """Return the layer's output and the adapter's together."""
        change = F.linear(F.linear(input, self.lora_a), self.lora_b)
        return F.linear(input, self.weight, self.bias) + self.factor * change

    def merged(self) -> nn.Linear:
        """Return a plain layer with the same output."""
        layer = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        layer.weight = nn.Parameter((self.weight + self.factor * self.lora_b @ self.lora_a).detach())
        layer.bias = self.bias
        return layer


def adapt(model: nn.Module, head: str, settings: LoraSettings, probe: Inputs) -> None:
    """Freeze the model but for adapters of the targets and, unless it is one, the head: changes it in place."""
    assert settings.rank is not None
    linear = [path for path, module in model.named_modules() if type(module) is nn.Linear]
    pattern = settings.targets
    targets = [path for path in linear if (path != head if pattern is None else re.search(pattern, path))]
    if not targets:
        known = ", ".join(linear) or "none"
        raise InputError(f"model.lora.targets: {pattern!r} is in no name of a linear layer; they are: {known}")
    model.requires_grad_(False)
    if head not in targets:
        model.get_submodule(head).requires_grad_(True)
    for path in targets:
        _replace(model, path, Adapted(model.get_submodule(path), settings.rank, settings.alpha))  # type: ignore[arg-type]
    _check_all_run(model, probe)


def merge(model: nn.Module) -> None:
    """Replace every adapted layer by a plain one with the same output: changes the model in place."""
    for path, module in list(model.named_modules()):
        if isinstance(module, Adapted):
            _replace(model, path, module.merged())


def _replace(model: nn.Module, path: str, layer: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, layer)


def _check_all_run(model: nn.Module, probe: Inputs) -> None:
    """Refuse layers whose weights the model uses without calling the layer: their adapters would do nothing.

    There are no hooks here, since torch's own encoder calls its layers only if somebody watches.
    """
    adapted = {path: module for path, module in model.named_modules() if isinstance(module, Adapted)}
    idle = set(adapted)

    def noting(path: str, layer: Adapted) -> Callable[[Tensor], Tensor]:
        def forward(inputs: Tensor) -> Tensor:
            idle.discard(path)
            return Adapted.forward(layer, inputs)

        return forward

    for path, layer in adapted.items():
        layer.__dict__["forward"] = noting(path, layer)
    try:
        with evaluating(model):
            call(model, probe)
    finally:
        for layer in adapted.values():
            del layer.__dict__["forward"]
    if idle:
        raise InputError(f"model.lora.targets: {min(idle)!r} is not called as a layer, so an adapter would do nothing")
