"""A user's own named arrays, checked and told apart into training and test samples."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsol.data.arrays import Array, stratified_test_indices
from fedsol.errors import InputError

OWN_NAMES = ("x_train", "y_train", "x_test", "y_test", "clients_train")
MEDMNIST_NAMES = tuple(f"{part}_{kind}" for part in ("train", "val", "test") for kind in ("images", "labels"))


@dataclass(frozen=True)
class Samples:
    """Inputs, labels and (where the data says it) owners of one split, as the user has them.

    Images that fedsol has decoded itself are known to be `channels_first`; of others it is found out.
    """

    inputs: Array
    labels: Array
    clients: Array | None = None
    channels_first: bool = False


def samples_from_arrays(
    arrays: Mapping[str, Array], source: str, test_fraction: float | None
) -> tuple[Samples, Samples]:
    """Training and test samples from named arrays: `x_train`, `y_train` … or MedMNIST's `train_images` …"""
    own = any(name in OWN_NAMES for name in arrays)
    allowed = OWN_NAMES if own else MEDMNIST_NAMES
    unknown = sorted(set(arrays) - set(allowed))
    if unknown or not arrays:
        found = f"array {unknown[0]!r} is not known" if unknown else "has no arrays"
        names = f"{', '.join(OWN_NAMES)} or {', '.join(MEDMNIST_NAMES)}"
        raise InputError(f"{source}: {found}; allowed are {names}")
    if own:
        train = pair(arrays, "x_train", "y_train", source, arrays.get("clients_train"))
        test = pair(arrays, "x_test", "y_test", source)
    else:
        parts = [pair(arrays, f"{part}_images", f"{part}_labels", source) for part in ("train", "val", "test")]
        train, test = _joined(parts[0], parts[1], source), parts[2]
    return _both(train, test, source, test_fraction)


def pair(
    arrays: Mapping[str, Array], inputs: str, labels: str, source: str, clients: Array | None = None
) -> Samples | None:
    """The samples of one part, checked for their counts; None if the part is absent."""
    if inputs not in arrays and labels not in arrays:
        return None
    for name in (inputs, labels):
        if name not in arrays:
            raise InputError(f"{source}: has no array {name!r}; it has {', '.join(sorted(arrays))}")
    if clients is not None:
        clients = _one_dimensional(clients, "clients_train", source)
    found = Samples(arrays[inputs], _one_dimensional(arrays[labels], labels, source), clients)
    if found.inputs.ndim < 2 or len(found.inputs) == 0:
        raise InputError(f"{source}: {inputs} has shape {found.inputs.shape}; it must be (N, …) with N at least 1")
    for name, array in ((labels, found.labels), ("clients_train", clients)):
        if array is not None and len(array) != len(found.inputs):
            raise InputError(f"{source}: {inputs} has {len(found.inputs)} samples but {name} has {len(array)}")
    return found


def _one_dimensional(array: Array, name: str, source: str) -> Array:
    """Labels or clients as (N,); (N, 1) is accepted. They must be integers or strings."""
    flat = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if flat.ndim != 1 or flat.dtype.kind not in "iubUS":
        raise InputError(
            f"{source}: {name} is {array.dtype} of shape {array.shape}; it must be integers or strings of shape (N,)"
        )
    return flat


def _joined(train: Samples | None, validation: Samples | None, source: str) -> Samples | None:
    if train is None or validation is None:
        return train or validation
    if train.inputs.shape[1:] != validation.inputs.shape[1:]:
        raise InputError(f"{source}: train_images and val_images must be of one size")
    return Samples(np.concatenate([train.inputs, validation.inputs]), np.concatenate([train.labels, validation.labels]))


def _both(
    train: Samples | None, test: Samples | None, source: str, test_fraction: float | None
) -> tuple[Samples, Samples]:
    """Training and test samples as they are, or the only ones there are split by `test_fraction`."""
    if train is not None and test is not None:
        if test_fraction is not None:
            raise InputError(f"test_fraction: {test_fraction} is not allowed: {source} has test samples of its own")
        return train, test
    only = train or test
    if only is None:
        raise InputError(f"{source}: has no samples")
    if test_fraction is None:
        missing = "test" if test is None else "training"
        raise InputError(f"{source}: has no {missing} samples; add them, or set test_fraction to split what is there")
    in_test = held_out(only.labels, test_fraction, source)
    return _part(only, ~in_test), _part(only, in_test)


def _part(samples: Samples, mask: NDArray[np.bool_]) -> Samples:
    clients = None if samples.clients is None else samples.clients[mask]
    return Samples(samples.inputs[mask], samples.labels[mask], clients)


def held_out(labels: Array, test_fraction: float, source: str) -> NDArray[np.bool_]:
    """Which samples become the test set: `test_fraction` of each class, always the same ones."""
    if not 0 < test_fraction < 1:
        raise InputError(f"test_fraction: {test_fraction} is not allowed; it must lie between 0 and 1")
    count = round(test_fraction * len(labels))
    if not 0 < count < len(labels):
        raise InputError(f"test_fraction: {test_fraction} of {source}'s {len(labels)} samples leaves one part empty")
    mask = np.zeros(len(labels), dtype=bool)
    mask[stratified_test_indices(labels, count)] = True
    return mask
