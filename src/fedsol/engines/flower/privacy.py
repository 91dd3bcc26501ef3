"""Differential privacy (`[privacy]`) with Flower's own noise: clipped updates, and noise on their mean."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from flwr.supercore.differential_privacy import add_gaussian_noise_inplace, compute_stdv

from fedsol.config.tables import PrivacySettings
from fedsol.core.messages import ServerState, Update
from fedsol.core.weights import clip_change, clone, pick
from fedsol.engines.base import Aggregation
from fedsol.errors import InputError
from fedsol.federation.federation import Federation


def aggregate_privately(
    settings: PrivacySettings, before: ServerState, updates: Sequence[Update], rule: Aggregation
) -> ServerState:
    """Return the server after a round. Every update is clipped here too, since a node may not have done it."""
    if settings.clipping == "off":
        return rule(before, updates)
    anchor = pick(before.weights, before.parameters)
    clipped = [replace(one, weights=clip_change(one.weights, anchor, settings.clip_norm)) for one in updates]
    after = rule(before, clipped)
    arrays = {name: tensor.numpy() for name, tensor in clone(pick(after.weights, before.weights)).items()}
    std = compute_stdv(settings.noise_multiplier, settings.clip_norm, len(updates))
    add_gaussian_noise_inplace(list(arrays.values()), std)
    return replace(after, weights={name: torch.from_numpy(array) for name, array in arrays.items()})


def check_privacy(federation: Federation) -> None:
    """Raise `InputError` for a method or model that the noise would not cover."""
    if federation.experiment.privacy.clipping == "off":
        return
    name = federation.experiment.algorithm["name"]
    if federation.initial_state():
        raise InputError(f"privacy.clipping: is not allowed with {name}: its clients' states would not be protected")
    if federation.model.buffers:
        raise InputError("privacy.clipping: is not allowed with a model that has running statistics (batch norm)")
    if any(tensor.ndim == 0 for tensor in federation.initial_weights().values()):
        raise InputError("privacy.clipping: is not allowed with a model that has scalar weights")
