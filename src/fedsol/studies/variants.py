"""Variants: the experiments that `fedsol compare -a` names."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedsol.config.catalog import ALGORITHMS
from fedsol.config.experiment import Experiment
from fedsol.config.overrides import parse_numbers, parse_override, split_list
from fedsol.errors import InputError

SERVER_OPTIMIZERS: dict[str, dict[str, Any]] = {
    name: {"algorithm.name": "fedavg", "server.optimizer": optimizer}
    for name, optimizer in {"fedavgm": "momentum", "fedadam": "adam", "fedyogi": "yogi"}.items()
}
"""Well-known names for FedAvg with a server optimizer."""


@dataclass(frozen=True)
class Variant:
    """An experiment and its label in a table."""

    label: str
    experiment: Experiment

    @property
    def folder(self) -> str:
        """The name of its directory."""
        return re.sub(r"[^\w.=-]+", "_", self.label)


def parse_variants(texts: Sequence[str], base: Experiment) -> list[Variant]:
    """Parse `fedavg,fedsol` or `fedsol:rho=1.5,perturb=all` or `fedavg:server.optimizer=adam`.

    A variant of the experiment's own algorithm starts from the experiment's settings. A key with a dot belongs to the
    experiment, any other to the algorithm.
    """
    variants = [_variant(part, base) for text in texts for part in _split(text)]
    if not variants:
        raise InputError("--algorithm: must name at least one")
    check_distinct("--algorithm", variants)
    return variants


def check_distinct(option: str, variants: Sequence[Variant]) -> None:
    """Refuse two variants that are the same experiment, or would share a directory."""
    for one, other in itertools.combinations(variants, 2):
        if one.experiment == other.experiment or one.folder == other.folder:
            raise InputError(f"{option}: {one.label} and {other.label} are the same")


def _split(text: str) -> list[str]:
    """Split `a,b:x=1,y=2,c` into `a`, `b:x=1,y=2` and `c`: a setting belongs to the name before it."""
    variants: list[str] = []
    for part in split_list(text):
        is_setting = "=" in part and ":" not in part.partition("=")[0]
        if is_setting and variants:
            variants[-1] += f",{part}"
        else:
            variants.append(part)
    return variants


def _variant(text: str, base: Experiment) -> Variant:
    return Variant(text, base.override(algorithm_changes(text)))


def algorithm_changes(text: str, option: str = "--algorithm") -> dict[str, Any]:
    """Parse a name (which may be `module:Class`), or `name:key=value,…`; return the keys of an experiment it sets."""
    name, settings = text, ""
    if "=" in text:
        name = text.partition("=")[0].rpartition(":")[0]
        settings = text[len(name) + 1 :]
    known = [*ALGORITHMS, *SERVER_OPTIMIZERS]
    if not name or (name not in known and name.partition(":")[0] in known):
        raise InputError(f"{option}: must be NAME or NAME:key=value,… (got {text!r})")
    changes = dict(SERVER_OPTIMIZERS.get(name, {"algorithm.name": name}))
    for part in split_list(settings):
        key, value = parse_override(part)
        changes[key if "." in key else f"algorithm.{key}"] = value
    return changes


def parse_seeds(text: str) -> list[int]:
    """Parse `0,1,2`."""
    seeds = parse_numbers("--seeds", text, int)
    if len(set(seeds)) < len(seeds):
        raise InputError(f"--seeds: must be different whole numbers such as 0,1,2 (got {text!r})")
    return seeds
