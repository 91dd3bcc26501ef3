"""Low-rank adapters of linear layers (`[model.lora]`).

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, equation 3: a frozen layer `W x` becomes
`W x + (alpha / rank) B A x`, where A is random and B is 0 at first, so that the model starts as it was.
"""

import math
import re
from collections.abc import Callable, Mapping

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
    linear = [(path, m) for path, m in model.named_modules(remove_duplicate=False) if type(m) is nn.Linear]
    pattern, classifier = settings.targets, model.get_submodule(head)
    chosen = (m for path, m in linear if (m is not classifier if pattern is None else re.search(pattern, path)))
    targets = list(dict.fromkeys(chosen))  # a layer with two names gets one adapter
    if not targets:
        known = ", ".join(path for path, _ in linear) or "none"
        raise InputError(f"model.lora.targets: {pattern!r} matches no linear layer; they are: {known}")
    model.requires_grad_(False)
    if classifier not in targets:
        classifier.requires_grad_(True)
    _replace(model, {layer: Adapted(layer, settings.rank, settings.alpha) for layer in targets})
    _check_all_run(model, probe)


def merge(model: nn.Module) -> None:
    """Replace every adapted layer by a plain one with the same output: changes the model in place."""
    _replace(model, {module: module.merged() for module in model.modules() if isinstance(module, Adapted)})


def _replace(model: nn.Module, layers: Mapping[nn.Module, nn.Module]) -> None:
    """Put layers in the places of others, in all of them: a module may have several names."""
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child is not None and child in layers:
                setattr(parent, name, layers[child])


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
