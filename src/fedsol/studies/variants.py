"""Variants: what `fedsol compare -a` names, each an experiment of its own."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedsol.config.catalog import ALGORITHMS
from fedsol.config.experiment import Experiment
from fedsol.config.overrides import parse_override
from fedsol.errors import InputError

SERVER_OPTIMIZERS: dict[str, dict[str, Any]] = {
    "fedavgm": {"algorithm.name": "fedavg", "server.optimizer": "momentum"},
    "fedadam": {"algorithm.name": "fedavg", "server.optimizer": "adam"},
    "fedyogi": {"algorithm.name": "fedavg", "server.optimizer": "yogi"},
}
"""Names that people know for FedAvg with a server optimiser."""


@dataclass(frozen=True)
class Variant:
    """An experiment under the name it has in the table of a comparison."""

    label: str
    experiment: Experiment

    @property
    def folder(self) -> str:
        """The label as a folder's name."""
        return re.sub(r"[^\w.=-]+", "_", self.label)


def parse_variants(texts: Sequence[str], base: Experiment) -> list[Variant]:
    """`fedavg,fedsol` or `fedsol:rho=1.5,perturb=all` or `fedavg:server.optimizer=adam`.

    A variant of the experiment's own algorithm starts from the experiment's settings. A key with a dot is one of the
    experiment, any other one of the algorithm.
    """
    variants = [_variant(part, base) for text in texts for part in _split(text)]
    if not variants:
        raise InputError("--algorithm: at least one is needed")
    for number, one in enumerate(variants):
        for other in variants[:number]:
            if one.experiment == other.experiment or one.folder == other.folder:
                raise InputError(f"--algorithm: {other.label} and {one.label} are the same")
    return variants


def _split(text: str) -> list[str]:
    """`a,b:x=1,y=2,c` is `a`, `b:x=1,y=2` and `c`: a part without a name of its own belongs to the one before."""
    variants: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        is_setting = "=" in part and ":" not in part.partition("=")[0]
        if is_setting and variants:
            variants[-1] += f",{part}"
        else:
            variants.append(part)
    return variants


def _variant(text: str, base: Experiment) -> Variant:
    """A name (which may be `module:Class`), or `name:key=value,…`."""
    name, settings = text, ""
    if "=" in text:
        name = text.partition("=")[0].rpartition(":")[0]
        settings = text[len(name) + 1 :]
    known = [*ALGORITHMS, *SERVER_OPTIMIZERS]
    if not name or (name not in known and name.partition(":")[0] in known):
        raise InputError(f"--algorithm: {text!r} is not allowed: must be NAME or NAME:key=value,…")
    changes = dict(SERVER_OPTIMIZERS.get(name, {"algorithm.name": name}))
    for part in filter(None, settings.split(",")):
        key, value = parse_override(part)
        changes[key if "." in key else f"algorithm.{key}"] = value
    return Variant(text, base.override(changes))


def parse_seeds(text: str) -> list[int]:
    """`0,1,2`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise InputError(f"--seeds: {text!r} is not allowed: must be different whole numbers such as 0,1,2")
    return [int(part) for part in parts]
