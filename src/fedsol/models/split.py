"""SplitModel: a model as a function of its weights, in two parts."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedsol.data.types import Inputs, tensors_of
from fedsol.errors import InputError

_AtHead = Literal["pass", "note", "stop"]


class _HeadReachedError(Exception):
    """Ends a pass through the model at its head."""


class OtherFrozenError(InputError):
    """Frozen weights differ from those that others in the federation have; the text reveals only that."""


class _Slot(NamedTuple):
    """One place in a module for a tensor of the model's state; a shared tensor has several."""

    name: str
    table: dict[str, Tensor]
    key: str
    tensor: Tensor
    in_head: bool

    @property
    def is_frozen(self) -> bool:
        """Whether it is a parameter that needs no gradient."""
        return isinstance(self.tensor, nn.Parameter) and not self.tensor.requires_grad


class SplitModel:
    """A model as a function of its weights, in two parts: the body, which computes features, and the head.

    Weights are a dict of `names` (trained parameters) and `buffers` (running statistics). A pass uses the tensors it is
    given, and changes buffers in place. Parameters without a gradient are `frozen`: they stay in the module, as
    non-persistent buffers do, and are no weights. A tensor that modules of the body share has one name. The model must
    be on its device already. One thread at a time can use it.
    """

    def __init__(self, model: nn.Module, head: str, probe: Inputs, autocast: torch.dtype | None = None) -> None:
        self.head = head
        self.autocast = autocast
        self._model = model
        self._head = model.get_submodule(head)
        slots = _slots(model, self._head)
        self.frozen = frozen_parameters(model)
        self._slots = [slot for slot in slots if not slot.is_frozen]
        self._head_slots = [slot for slot in self._slots if slot.in_head]
        self._body_slots = [slot for slot in self._slots if not slot.in_head]
        trained = {slot.name: slot.in_head for slot in self._slots if isinstance(slot.tensor, nn.Parameter)}
        self.names = tuple(trained)
        self.head_names = tuple(name for name, in_head in trained.items() if in_head)
        self.body_names = tuple(name for name, in_head in trained.items() if not in_head)
        self.head_weights = tuple(dict.fromkeys(slot.name for slot in self._head_slots if not slot.is_frozen))
        norms = {id(tensor) for module in model.modules() if _is_norm(module) for tensor in _own_tensors(module)}
        self.norm_weights = tuple(dict.fromkeys(slot.name for slot in self._slots if id(slot.tensor) in norms))
        self.buffers = tuple(name for name in self.initial_weights() if name not in trained)
        self.weights = (*self.names, *self.buffers)
        self._modules = list(model.modules())
        for module in self._modules:
            if isinstance(module, _BatchNorm):
                module.register_forward_pre_hook(_use_running_statistics_if_alone)
                module.register_forward_hook(_back_to_training)
        self._plain_modes = all(type(module).train is nn.Module.train for module in self._modules)
        self._entered: list[Tensor] = []
        self._at_head: _AtHead = "pass"
        self._head.register_forward_pre_hook(self._enter_head)
        self._check_parts()
        self._check_split(probe)

    @cached_property
    def frozen_sha256(self) -> str:
        """The SHA-256 of the frozen parameters, by which other machines compare theirs; empty if there are none."""
        return hash_tensors(self.frozen)

    def check_frozen(self, sha256: str, where: str) -> None:
        """Raise `OtherFrozenError` unless the frozen parameters have this hash, that of those at another place."""
        check_frozen(self.frozen_sha256, sha256, where)

    def without_frozen(self, weights: Mapping[str, Tensor], where: object) -> dict[str, Tensor]:
        """Return weights without frozen ones, which earlier versions of fedsol saved; refuse other values of these."""
        for name in weights.keys() & self.frozen.keys():
            if not torch.equal(weights[name], self.frozen[name].cpu()):
                raise OtherFrozenError(f"{where}: the frozen weight {name!r} is not that of the model")
        return {name: tensor for name, tensor in weights.items() if name not in self.frozen}

    def initial_weights(self) -> dict[str, Tensor]:
        """Return copies of the model's own trained parameters and buffers."""
        return {slot.name: slot.tensor.detach().clone(memory_format=torch.contiguous_format) for slot in self._slots}

    def train(self, mode: bool = True) -> None:
        """Switch to training mode, or to evaluation mode."""
        if not self._plain_modes:
            self._model.train(mode)
        elif self._model.training != mode:
            for module in self._modules:
                module.__dict__["training"] = mode  # nn.Module.train without its slow recursion

    def outputs(self, weights: Mapping[str, Tensor], inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Return the features that enter the head, and the logits."""
        with self._holding(weights, self._slots, at_head="note"), self._precision(inputs):
            logits = call(self._model, inputs)
            return self._entered_features(), logits.float() if self.autocast else logits

    def features(self, weights: Mapping[str, Tensor], inputs: Inputs) -> Tensor:
        """Return the features that enter the head; only the body runs, with its weights."""
        with self._holding(weights, self._body_slots, at_head="stop"), self._precision(inputs):
            with suppress(_HeadReachedError):
                call(self._model, inputs)
            return self._entered_features()

    def logits(self, weights: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """Return the logits of features; only the head runs, with its weights."""
        with self._holding(weights, self._head_slots, at_head="pass"), self._precision(features):
            logits: Tensor = self._head(features)
            return logits.float() if self.autocast else logits

    def _precision(self, inputs: Inputs) -> AbstractContextManager[object]:
        """Use the reduced precision of `autocast`, if set; losses are always in full precision."""
        device = next(iter(tensors_of(inputs).values())).device
        return torch.autocast(device.type, self.autocast) if self.autocast else nullcontext()

    @contextmanager
    def _holding(self, weights: Mapping[str, Tensor], slots: list[_Slot], at_head: _AtHead) -> Iterator[None]:
        """Put the weights into the module for one pass, then restore its own tensors.

        This is `torch.func.functional_call`, except that the places are looked up once and not in every pass.
        """
        self._at_head = at_head
        try:
            for name, table, key, _, _ in slots:
                table[key] = weights[name]
            yield
            for name, table, key, _, _ in slots:
                if table[key] is not weights[name]:  # the module replaced its buffer instead of changing it
                    with torch.no_grad():
                        weights[name].copy_(table[key])
        finally:
            for _, table, key, tensor, _ in slots:
                table[key] = tensor
            self._entered.clear()
            self._at_head = "pass"

    def _enter_head(self, _head: nn.Module, inputs: tuple[object, ...]) -> None:
        if self._at_head == "pass":
            return
        if len(inputs) != 1 or not isinstance(inputs[0], Tensor):
            raise InputError(f"model.head: {self.head!r} must be called with one tensor as its only argument")
        self._entered.append(inputs[0])
        if self._at_head == "stop":
            raise _HeadReachedError

    def _entered_features(self) -> Tensor:
        if len(self._entered) != 1:
            raise InputError(f"model.head: {self.head!r} must run once in a pass (got {len(self._entered)} times)")
        return self._entered[0]

    def _check_parts(self) -> None:
        """Refuse heads that cannot be trained, or not separately from the body."""
        if not self.head_names:
            raise InputError(f"model.head: {self.head!r} must have parameters that can be trained")
        if shared := {s.name for s in self._head_slots} & {s.name for s in self._body_slots}:
            raise InputError(
                f"model.head: {self.head!r} must have its own weights (it shares {', '.join(sorted(shared))} with the"
                " rest of the model)"
            )
        if any(isinstance(module, _BatchNorm) for module in self._head.modules()):
            raise InputError(f"model.head: {self.head!r} must not have a batch norm")

    def _check_split(self, probe: Inputs) -> None:
        """Refuse a head whose output is not exactly the model's."""
        weights = self.initial_weights()
        with evaluating(self._model):
            _, expected = self.outputs(weights, probe)
            found = self.logits(weights, self.features(weights, probe))
        if not torch.equal(found, expected):
            raise InputError(
                f"model.head: the output of {self.head!r} must be the model's output; return it unchanged (no softmax"
                " or log_softmax), or set model.head to the module whose output the model returns"
            )


def call(model: nn.Module, inputs: Inputs) -> Tensor:
    """Return a model's logits: its output, or the `logits` of an output with several parts, as transformers have."""
    output = model(inputs) if isinstance(inputs, Tensor) else model(**inputs)
    return cast(Tensor, output if isinstance(output, Tensor) else getattr(output, "logits", output))


def _is_norm(module: nn.Module) -> bool:
    """Return whether a module normalizes; those of other libraries are known by their names."""
    return "norm" in type(module).__name__.lower() and not list(module.children())


def _own_tensors(module: nn.Module) -> Iterator[Tensor]:
    return (tensor for tensor in (*module._parameters.values(), *module._buffers.values()) if tensor is not None)


_ALONE = "_fedsol_alone"


def _use_running_statistics_if_alone(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Normalize an input with a single value per channel, which has no variance, by the running statistics."""
    if norm.training and inputs[0].numel() == inputs[0].shape[1]:
        if not norm.track_running_stats:
            raise InputError(
                "model.name: a batch norm without running statistics cannot normalize one sample with one value per "
                "channel; use a model with running statistics (resnet18) or larger images"
            )
        norm.eval()
        setattr(norm, _ALONE, True)


def _back_to_training(norm: nn.Module, _inputs: object, _output: object) -> None:
    if norm.__dict__.pop(_ALONE, False):
        norm.train()


def _slots(model: nn.Module, head: nn.Module) -> list[_Slot]:
    """Return every place of a parameter or persistent buffer, under the tensor's first name."""
    names: dict[int, str] = {}
    head_modules = set(head.modules())
    slots = []
    for path, module in model.named_modules():
        for table in (module._parameters, module._buffers):
            for key, tensor in table.items():
                if tensor is None or key in module._non_persistent_buffers_set:
                    continue
                name = names.setdefault(id(tensor), f"{path}.{key}" if path else key)
                slots.append(_Slot(name, cast(dict[str, Tensor], table), key, tensor, module in head_modules))
    return slots


def frozen_parameters(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters that need no gradient, as a `SplitModel` names them."""
    return {slot.name: slot.tensor for slot in _slots(model, model) if slot.is_frozen}


def named_state(model: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and persistent buffers, as a `SplitModel` names them."""
    return {slot.name: slot.tensor for slot in _slots(model, model)}


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of names, shapes, types and values; nothing if there are no tensors."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} ".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest() if tensors else ""


def check_frozen(found: str, expected: str, where: str) -> None:
    """Raise `OtherFrozenError` unless two hashes of frozen weights, the second that of those `where`, are the same."""
    if found != expected:
        here, there = (f"the sha256 {one}" if one else "no hash, as there are none" for one in (found, expected))
        raise OtherFrozenError(
            f"model: the frozen weights here have {here}, and those {where} have {there}; all must build the same "
            "model: its factory, options, files and seed"
        )


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """Copy weights, as a `SplitModel` names them, into a model; return it in evaluation mode.

    Frozen weights may be missing: the model has them. (Earlier versions of fedsol saved them.)
    """
    slots = [slot for slot in _slots(model, model) if slot.name in weights or not slot.is_frozen]
    if missing := {slot.name for slot in slots} ^ weights.keys():
        raise InputError(f"model.name: the weights do not fit the model: {min(missing)!r} is in only one of them")
    with torch.no_grad():
        for slot in slots:
            if slot.tensor.shape != weights[slot.name].shape:
                found, expected = tuple(weights[slot.name].shape), tuple(slot.tensor.shape)
                raise InputError(f"model.name: the weight {slot.name!r} must have the shape {expected} (got {found})")
            slot.tensor.copy_(weights[slot.name])
    return model.eval()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Use evaluation mode without gradients; then training mode, the mode of every new model."""
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train()
