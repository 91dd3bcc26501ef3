"""Experiment: everything that determines a run's result, typed, with TOML in and out.

Every bad key or value is one clear `InputError`. All keys are listed in docs/experiment.md.
"""

import copy
import math
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import tomli_w
from pydantic import ValidationError, field_validator, model_validator

from fedsol.config.algorithm import complete_table, find_algorithm, is_taken_as_it_is, make_algorithm, without_own_code
from fedsol.config.catalog import DEFAULT_ALGORITHM, EXPERIMENTS
from fedsol.config.fields import Count, Seed
from fedsol.config.model import ModelSettings
from fedsol.config.overrides import apply_overrides, check_nesting
from fedsol.config.privacy import PrivacySettings, privacy_is_on
from fedsol.config.tables import (
    BY_CLASS,
    PRIVATE,
    ClientSettings,
    DataSettings,
    EngineSettings,
    FaultSettings,
    ServerSettings,
    Settings,
    check_values,
    input_error,
    setting,
    suggestion,
)
from fedsol.config.task import CLASS_KINDS, NOUNS, TaskSettings
from fedsol.core.paths import user_path
from fedsol.errors import InputError


class Experiment(Settings):
    """One run, completely described: the same experiment gives bitwise the same result.

    A table may be written as its name: `Experiment(data="digits", algorithm="fedavg", client={"lr": 0.1})`. An
    algorithm may also be an instance of its class.
    """

    seed: Seed = setting(0, "seed of all randomness: partition, initial weights, sampling, batches")
    rounds: Count | None = setting(None, "communication rounds (default: the dataset's)")
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    algorithm: dict[str, Any] = setting({"name": DEFAULT_ALGORITHM}, "name and the algorithm's own settings")
    client: ClientSettings = ClientSettings()
    server: ServerSettings = ServerSettings()
    faults: FaultSettings = FaultSettings()
    engine: EngineSettings = EngineSettings()
    privacy: PrivacySettings = PrivacySettings()
    task: TaskSettings = TaskSettings()

    def __init__(self, **tables: Any) -> None:
        tables = {name: _with_name(name, table) for name, table in tables.items()}
        check_values(tables)
        try:
            super().__init__(**tables)
        except ValidationError as error:
            known = {name: [*table.model_fields] for name, table in TABLES.items()}
            known["algorithm"] = [*complete_table(tables.get("algorithm", {}))]
            raise input_error(error, "", known) from error

    @model_validator(mode="before")
    @classmethod
    def _follow_the_task(cls, tables: Any) -> Any:
        """Choose the partition `iid` for a task without classes, unless another is set or a column names clients."""
        task, data = (tables.get(name, {}) for name in ("task", "data"))
        if not isinstance(task, dict) or not isinstance(data, dict) or data.get("client") is not None:
            return tables
        partition = data.get("partition", {})
        if task.get("kind", "classification") == "classification" or not isinstance(partition, dict):
            return tables
        return {**tables, "data": {**data, "partition": {"kind": "iid", **partition}}}

    @model_validator(mode="before")
    @classmethod
    def _follow_privacy(cls, tables: Any) -> Any:
        """Weight updates equally where `[privacy]` is on, unless a weighting is set."""
        given = (tables.get(name, {}) for name in ("privacy", "server"))
        privacy, server = (one.model_dump(exclude_unset=True) if isinstance(one, Settings) else one for one in given)
        if not isinstance(privacy, dict) or not isinstance(server, dict) or not privacy_is_on(privacy):
            return tables
        if privacy.get("level") == "example":
            return tables
        return {**tables, "server": {"weighting": "uniform", **server}}

    @field_validator("algorithm", mode="before")
    @classmethod
    def _complete_algorithm(cls, table: Any) -> dict[str, Any]:
        return complete_table(table)

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        self._check_validation()
        self._check_shift()
        if is_taken_as_it_is(self.algorithm["name"]):
            return self
        self._check_task()
        self._check_frozen_head()
        self._check_privacy()
        name, algorithm = self.algorithm["name"], make_algorithm(self.algorithm)
        if self.server.aggregation != "mean" and not algorithm.averages_plainly():
            raise ValueError(
                f"server.aggregation: {self.server.aggregation!r} is not allowed with {name}: its server side is more "
                "than an average of weights; allowed: 'mean'"
            )
        if self.server.lr != 1 and self.server.optimizer != "average":
            raise ValueError(
                f"server.lr: must be 1 with server.optimizer = {self.server.optimizer!r}, whose step size is "
                f"server.optimizer_lr (got {self.server.lr:g})"
            )
        optimizer = self.client.optimizer
        options = {"nesterov", "dampening", "maximize"} & self.client.optimizer_options.keys()
        if algorithm.needs_sgd and (optimizer.lower() != "sgd" or options):
            raise ValueError(
                f"client.optimizer: {optimizer!r}{f' with {min(options)}' if options else ''} is not allowed with "
                f"{name}: its formulas hold for plain 'sgd' with momentum only"
            )
        return self

    def _check_task(self) -> None:
        """Raise `ValueError` if the method or the partition does not fit the task."""
        kind, name = self.task.kind, self.algorithm["name"]
        fitting = find_algorithm(name).tasks
        if kind not in fitting:
            raise ValueError(
                f"algorithm.name: {name!r} does not fit task.kind = {kind!r}; it fits {', '.join(fitting)}"
            )
        if self.algorithm.get("proximal") == "not-true-kl" and kind not in CLASS_KINDS:
            raise ValueError(
                f"algorithm.proximal: 'not-true-kl' does not fit task.kind = {kind!r}, which has no true class; it "
                f"fits {', '.join(CLASS_KINDS)}"
            )
        partition = self.data.partition.kind
        if kind != "classification" and partition in BY_CLASS and self.data.name != PRIVATE:
            raise ValueError(
                f"data.partition.kind: {partition!r} splits by the class of a sample, and a {NOUNS[kind]} has none; "
                "allowed: iid, quantity, own, own-grouped, file"
            )
        if kind != "classification" and self.faults.corruption == "label-flip":
            raise ValueError(f"faults.corruption: 'label-flip' does not fit task.kind = {kind!r}; it flips classes")

    def _check_shift(self) -> None:
        """Raise `ValueError` if it would change nothing: nodes train on their own images as they are."""
        if self.data.shift != "none" and self.data.name == PRIVATE:
            raise ValueError(f"data.shift: {self.data.shift!r} is not allowed with private data; allowed: 'none'")

    def _check_validation(self) -> None:
        """Raise `ValueError` unless somebody has a validation set where one is required."""
        if self.server.patience is not None and not self.data.validation:
            raise ValueError(
                f"server.patience: {self.server.patience} is not allowed without a validation set; set data.validation "
                "to a share of the training samples, such as 0.1"
            )
        stop_at, primary = self.server.stop_at, self.task.primary
        if stop_at is not None and primary.is_share and not 0 <= stop_at <= 1:
            raise ValueError(f"server.stop_at: must be from 0 to 1 for {primary.title} (got {stop_at:g})")
        if self.data.validation and self.data.validation_by == "central" and self.data.name == PRIVATE:
            raise ValueError(
                "data.validation_by: 'central' is not allowed with private data, which only the nodes have; "
                "allowed: 'client'"
            )

    def _check_frozen_head(self) -> None:
        """Raise `ValueError` if nothing would be perturbed because the classifier never moves."""
        perturbation = make_algorithm(self.algorithm).perturbation if self.client.trains == "body" else None
        if perturbation is not None and perturbation.is_zero_if_head_is_frozen:
            raise ValueError(
                "client.trains: 'body' is not allowed with algorithm.perturb = 'head' and strength = "
                f"{perturbation.strength!r}: the classifier never moves, so nothing would be perturbed; set "
                "algorithm.perturb to 'body' or 'all'"
                + ("" if perturbation.along_a_change else ", or algorithm.strength to 'fixed'")
            )

    def _check_privacy(self) -> None:
        """Raise `ValueError` unless all that a round releases is clipped, noised and accounted for."""
        if not self.privacy.is_on:
            return
        if self.privacy.level == "example":
            self._check_examples()
            return
        balanced = self.task.class_weights  # counts the labels of all clients, so each would change all updates
        collusion = self.faults.corruption == "little-is-enough" and bool(
            self.faults.corrupted or self.faults.attackers
        )
        refused = {
            "task.class_weights": (balanced, "a list", balanced == "balanced"),
            "server.weighting": (self.server.weighting, "uniform", self.server.weighting != "uniform"),
            "server.aggregation": (self.server.aggregation, "mean", self.server.aggregation != "mean"),
            "server.max_change": (self.server.max_change, 0, bool(self.server.max_change)),
            "faults.late": (self.faults.late, 0.0, bool(self.faults.late)),
            "faults.corruption": (self.faults.corruption, "one that looks at no other client's update", collusion),
            "data.validation_by": (self.data.validation_by, "central", self._clients_validate),
            "engine.kind": (
                self.engine.kind,
                "flower",
                self.privacy.clipping == "client" and self.engine.kind != "flower",
            ),
        }
        for key, (value, allowed, is_refused) in refused.items():
            if is_refused:
                raise ValueError(f"{key}: {value!r} is not allowed with [privacy] on; allowed: {allowed!r}")

    def _check_examples(self) -> None:
        """Raise `ValueError` unless every gradient of a sample depends on this sample alone."""
        name, usage = self.algorithm["name"], self.algorithm.get("usage", "auxiliary")
        if name not in ("fedavg", "fedprox") or usage != "auxiliary":
            shown = f"{name} with usage = {usage!r}" if name == "fedprox" else name
            raise ValueError(
                f"privacy.level: 'example' is not allowed with {shown}; allowed: fedavg, and fedprox with usage = "
                "'auxiliary'"
            )
        if self.task.class_weights is not None:
            raise ValueError("task.class_weights: must not be set with privacy.level = 'example'")
        if self._clients_validate:
            raise ValueError(
                "data.validation_by: 'client' is not allowed with privacy.level = 'example': the choice of the best "
                "round would reveal something of these samples; allowed: 'central'"
            )

    @property
    def _clients_validate(self) -> bool:
        return bool(self.data.validation) and self.data.validation_by == "client"

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an experiment file."""
        return cls(**read_toml(Path(path)))

    @classmethod
    def load_saved(cls, path: Path) -> Self:
        """Read the experiment of a run directory, which was checked when the run began; no code is imported for it."""
        with without_own_code():
            return cls.load(path)

    def override(self, changes: Mapping[str, Any]) -> Self:
        """Return a copy with dotted keys replaced, as `--set` does: `{"algorithm.rho": 1.0}`."""
        return type(self)(**apply_overrides(self.model_dump(exclude_unset=True), changes))

    def to_toml(self) -> str:
        """Return the complete experiment (without unset keys) as TOML."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))

    def is_evaluated(self, round_number: int) -> bool:
        """Return whether the global model is evaluated after this round, counted from 1."""
        assert self.rounds is not None
        is_last = round_number > self.rounds - self.server.evaluate_last
        return is_last or round_number % self.server.evaluate_every == 0

    def learning_rate(self, round_number: int) -> float:
        """Return the learning rate of a round, counted from 1."""
        if self.server.lr_schedule == "cosine":
            if self.rounds is None:
                raise InputError("rounds: is missing; a cosine schedule depends on it")
            return self.client.lr * 0.5 * (1 + math.cos(math.pi * (round_number - 1) / self.rounds))
        return float(self.client.lr * self.server.lr_decay ** (round_number - 1))


SHORT = {"data": "name", "model": "name", "algorithm": "name", "task": "kind", "engine": "kind"}
"""The key that the text of a table stands for: `data = "digits"` is `data = {name = "digits"}`."""


def _with_name(name: str, table: Any) -> Any:
    """Return a table that is written as its name only in full."""
    return {SHORT[name]: str(table)} if name in SHORT and isinstance(table, str | Path) else table


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file, or raise an error that names the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such experiment file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as TOML: {error}") from error
    return parse_toml(text, str(path))


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Return the tables of a TOML text, or raise an error that names its source."""
    try:
        tables = tomllib.loads(text)
    except RecursionError as error:
        raise InputError(f"{source}: cannot be read as TOML: it is nested too deeply") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source}: cannot be read as TOML: {error}") from error
    except ValueError as error:  # Python converts no number of more than 4300 digits
        raise InputError(f"{source}: has a number of thousands of digits; whole numbers have 64 bits") from error
    check_nesting(tables, source)
    return tables


def find_experiment(name: str) -> dict[str, Any]:
    """Return the tables of an experiment, given as a file or as a name that `fedsol list experiments` shows."""
    path = user_path(name)
    if name.endswith(".toml") or path.is_file():
        return read_toml(path)
    if name not in EXPERIMENTS:
        raise InputError(f"{name}: no such file or experiment; {suggestion(name, EXPERIMENTS)}")
    return copy.deepcopy(EXPERIMENTS[name].tables)


def _walk(path: str, table: type[Settings]) -> Iterator[tuple[str, type[Settings]]]:
    yield path, table
    for name, field in table.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            yield from _walk(f"{path}.{name}".lstrip("."), field.annotation)


TABLES: dict[str, type[Settings]] = dict(_walk("", Experiment))
"""Every table of the experiment file except `[algorithm]`, whose keys depend on the algorithm."""
