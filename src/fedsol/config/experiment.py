"""Experiment: everything that decides a run's result, typed, with TOML in and out.

Every bad key or value is one clear `InputError`. The reference of all keys is docs/experiment.md.
"""

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import Field, ValidationError, field_validator, model_validator

from fedsol.config import fields
from fedsol.config.tables import EngineSettings, FaultSettings, PrivacySettings, PrivateSettings
from fedsol.config.validation import Table, input_error
from fedsol.errors import InputError

PRIVATE = "private"
"""The name of data that only the nodes of a deployment have."""

KEYS_WITHOUT_EFFECT = {
    "engine.kind",
    "engine.workers",
    "engine.address",
    "engine.client_cpus",
    "engine.client_gpus",
    "engine.timeout",
    "engine.patience",
    "data.root",
    "data.download",
    "data.cache",
    "data.private.test",
    "server.checkpoint_every",
}
"""Keys that may differ between the two halves of a resumed run: no result depends on them."""


class PartitionSettings(Table):
    """`[data.partition]`: how the training set is dealt out to clients."""

    kind: Annotated[
        Literal["iid", "sharding", "dirichlet", "file", "own"],
        Field(description="`own` takes the client ids that the data brings itself"),
    ] = "dirichlet"
    clients: Annotated[fields.Count | None, Field(description="number of clients (default: the paper's)")] = None
    alpha: Annotated[float, Field(gt=0, description="dirichlet: smaller is more heterogeneous")] = 0.1
    cap: Annotated[bool, Field(description="dirichlet: no further class for a client with its average share")] = True
    min_size: Annotated[int, Field(ge=1, description="dirichlet: fewest samples of a client")] = 10
    shards: Annotated[int, Field(ge=1, description="sharding: shards per client")] = 2
    balance: Annotated[
        Literal["size", "class"],
        Field(description="sharding: shards of equal size, or the same number of shards per class"),
    ] = "size"
    file: Annotated[str, Field(description="file: a partition manifest or a JSON list of index lists")] = ""
    held_out: Annotated[
        float, Field(ge=0, lt=1, description="share of each client's samples kept out of training, for its own tests")
    ] = 0.0


class AugmentationSettings(Table):
    """`[data.augmentation]`: replaces the dataset's own training transform, key by key."""

    pad: Annotated[int | None, Field(ge=0, description="pad by this many pixels and crop back")] = None
    pad_mode: Literal["zero", "reflect"] | None = None
    flip: Annotated[bool | None, Field(description="mirror half of the images")] = None
    cutout: Annotated[int | None, Field(ge=0, description="side of the square that is blanked, 0 for none")] = None


class DataSettings(Table):
    """`[data]`: which data, and where it is."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            description="a dataset's name, an .npz file, an image folder, `module:function`; `private`: nodes have it",
        ),
    ] = "digits"
    root: Annotated[str, Field(description="folder that holds the named datasets")] = "data"
    download: Annotated[bool, Field(description="fetch files of a named dataset that are missing")] = True
    channels: Annotated[Literal[1, 3] | None, Field(description="channels a model sees (default: the dataset's)")] = (
        None
    )
    image_size: Annotated[int | None, Field(ge=1, description="image folders: resize to this side")] = None
    layout: Annotated[
        Literal["class", "client/class"], Field(description="image folders: what the folder levels mean")
    ] = "class"
    test_fraction: Annotated[
        float | None, Field(gt=0, lt=1, description="own data without a test set: share held out for it")
    ] = None
    cache: Annotated[
        str | None, Field(description="image folders: where decoded images are kept (default: beside them)")
    ] = None
    part: Annotated[
        float,
        Field(
            gt=0, le=1, description="share of every client's samples and of the test set that is used, for a quick try"
        ),
    ] = 1.0
    partition: PartitionSettings = PartitionSettings()
    augmentation: AugmentationSettings = AugmentationSettings()
    private: PrivateSettings = PrivateSettings()


class ModelSettings(Table):
    """`[model]`: which network."""

    name: Annotated[
        str | None,
        Field(description="a model's name or `module:factory` (default: cnn; small for tiny images, mlp for vectors)"),
    ] = None
    head: Annotated[str | None, Field(description="the classifier layer of an own model (default: found)")] = None
    options: Annotated[dict[str, Any], Field(description="arguments of the model's factory")] = Field(
        default_factory=dict
    )


class ClientSettings(Table):
    """`[client]`: local training."""

    epochs: Annotated[int, Field(ge=1, description="passes over the client's data in a round")] = 5
    batch_size: Annotated[int, Field(ge=1)] = 50
    lr: Annotated[float, Field(gt=0, description="learning rate of round 1")] = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1, description="fresh for every client and round")] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 1e-5
    optimizer: Annotated[str, Field(description="a class of torch.optim; sgd takes `momentum`")] = "sgd"
    optimizer_options: Annotated[dict[str, Any], Field(description="further arguments of the optimiser")] = Field(
        default_factory=dict
    )
    clip_norm: Annotated[float | None, Field(gt=0, description="longest gradient that is applied")] = None
    trains: Annotated[
        Literal["all", "body"],
        Field(description="what local training changes: all weights, or all but the classifier (FedBABU's idea)"),
    ] = "all"


class ServerSettings(Table):
    """`[server]`: rounds as the server sees them."""

    fraction: Annotated[float | None, Field(gt=0, le=1, description="share of clients sampled each round")] = None
    weighting: Annotated[
        Literal["size", "uniform"], Field(description="weights of the average: by examples, or all alike")
    ] = "size"
    lr_schedule: Annotated[
        Literal["exponential", "cosine"], Field(description="`lr_decay` per round, or a cosine from lr to 0")
    ] = "exponential"
    lr_decay: Annotated[float, Field(gt=0, le=1, description="factor on the learning rate after each round")] = 0.99
    aggregation: Annotated[
        Literal["mean", "median", "trimmed-mean"],
        Field(description="how updates are combined; the last two bear some that are wrong, whatever their sizes"),
    ] = "mean"
    trim: Annotated[float, Field(ge=0, lt=0.5, description="trimmed-mean: share cut off at either end")] = 0.1
    min_updates: Annotated[
        int,
        Field(ge=1, description="fewest updates that change the global model; a round with fewer leaves it as it is"),
    ] = 1
    max_update_norm: Annotated[
        float | None, Field(gt=0, description="longest change of the weights that an update may bring; cut to it")
    ] = None
    optimizer: Annotated[
        Literal["average", "momentum", "adam", "yogi"],
        Field(description="what is done with a round's average: taken as it is, or FedAvgM, FedAdam, FedYogi"),
    ] = "average"
    optimizer_lr: Annotated[
        float | None, Field(gt=0, description="step of the server optimiser (default: 1 for momentum, else 0.01)")
    ] = None
    optimizer_momentum: Annotated[float, Field(ge=0, lt=1, description="its momentum, or beta 1")] = 0.9
    optimizer_beta2: Annotated[float, Field(ge=0, lt=1, description="beta 2 of adam and yogi")] = 0.99
    optimizer_epsilon: Annotated[float, Field(gt=0, description="adaptivity of adam and yogi")] = 1e-3
    evaluate_every: Annotated[int, Field(ge=1, description="rounds between global evaluations")] = 1
    evaluate_last: Annotated[int, Field(ge=1, description="rounds at the end that are always evaluated")] = 1
    evaluate_clients: Annotated[
        int | None,
        Field(ge=1, description="clients that test the global model on what they held out (default: all)"),
    ] = None
    evaluate_batch: Annotated[int, Field(ge=1, description="batch size of evaluations")] = 50
    checkpoint_every: Annotated[int, Field(ge=1, description="rounds between checkpoints")] = 1


class Experiment(Table):
    """One run, completely described: the same experiment gives bitwise the same result."""

    seed: Annotated[
        int, Field(ge=0, description="of everything random: partition, initial weights, sampling, batches")
    ] = 0
    rounds: Annotated[int | None, Field(ge=1, description="communication rounds (default: the dataset's)")] = None
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    algorithm: Annotated[
        dict[str, Any],
        Field(default_factory=lambda: {"name": "fedsol"}, description="name and the algorithm's own settings"),
    ]
    client: ClientSettings = ClientSettings()
    server: ServerSettings = ServerSettings()
    faults: FaultSettings = FaultSettings()
    engine: EngineSettings = EngineSettings()
    privacy: PrivacySettings = PrivacySettings()

    def __init__(self, **tables: Any) -> None:
        try:
            super().__init__(**tables)
        except ValidationError as error:
            raise input_error(error, "", {name: table.model_fields for name, table in TABLES.items()}) from error

    @field_validator("algorithm", mode="before")
    @classmethod
    def _complete_algorithm(cls, table: Any) -> dict[str, Any]:
        from fedsol.algorithms import complete_table

        return complete_table(table)

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        from fedsol.algorithms import find_algorithm, make_algorithm
        from fedsol.federation.local_training import check_optimizer

        check_optimizer(self.client)
        if self.client.trains == "body":
            make_algorithm(self.algorithm).check_frozen_head()
        self._check_privacy()
        robust = self.server.aggregation != "mean"
        if robust and not find_algorithm(self.algorithm["name"]).averages_plainly():
            raise ValueError(
                f"server.aggregation: {self.server.aggregation!r} is not allowed with {self.algorithm['name']}: its "
                "server side is more than an average of weights; allowed: 'mean'"
            )
        if find_algorithm(self.algorithm["name"]).needs_sgd:
            name, options = (
                self.client.optimizer,
                {"nesterov", "dampening", "maximize"} & {*self.client.optimizer_options},
            )
            if name.lower() != "sgd" or options:
                raise ValueError(
                    f"client.optimizer: {name!r}{f' with {min(options)}' if options else ''} is not allowed with "
                    f"{self.algorithm['name']}: its formulas hold for plain 'sgd' with momentum only"
                )
        return self

    def _check_privacy(self) -> None:
        """The noise of `[privacy]` is measured to a plain average in which every update counts alike."""
        if self.privacy.clipping == "off":
            return
        from fedsol.algorithms import find_algorithm

        needs = {
            "engine.kind": (self.engine.kind, "flower"),
            "server.weighting": (self.server.weighting, "uniform"),
            "server.aggregation": (self.server.aggregation, "mean"),
            "server.optimizer": (self.server.optimizer, "average"),
            "faults.late": (self.faults.late, 0.0),
        }
        for key, (value, needed) in needs.items():
            if value != needed:
                raise ValueError(f"{key}: {value!r} is not allowed with privacy.clipping; allowed: {needed!r}")
        if not find_algorithm(self.algorithm["name"]).averages_plainly():
            raise ValueError(
                f"privacy.clipping: is not allowed with {self.algorithm['name']}: its server side is more than an "
                "average of weights"
            )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads an experiment file."""
        return cls(**read_toml(Path(path)))

    def override(self, changes: Mapping[str, Any]) -> Self:
        """A copy with dotted keys replaced, as `--set` does: `{"algorithm.rho": 1.0}`."""
        return type(self)(**apply_overrides(self.model_dump(exclude_defaults=True), changes))

    def to_toml(self) -> str:
        """The complete experiment (without keys that are unset) as TOML."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))

    def is_evaluated(self, round_number: int) -> bool:
        """Whether the global model is evaluated after this round, counted from 1."""
        assert self.rounds is not None
        is_last = round_number > self.rounds - self.server.evaluate_last
        return is_last or round_number % self.server.evaluate_every == 0

    def learning_rate(self, round_number: int) -> float:
        """Learning rate of a round, counted from 1."""
        if self.server.lr_schedule == "cosine":
            if self.rounds is None:
                raise InputError("rounds: is missing: a cosine schedule needs to know how many there are")
            return self.client.lr * 0.5 * (1 + math.cos(math.pi * (round_number - 1) / self.rounds))
        return float(self.client.lr * self.server.lr_decay ** (round_number - 1))


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, or an error that names the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such experiment file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as TOML: {error}") from error
    return parse_toml(text, str(path))


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The tables of a TOML text, or an error that names where it came from."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source}: cannot be read as TOML: {error}") from error


def parse_override(text: str) -> tuple[str, Any]:
    """`key=value` with the value in TOML notation; a bare word is a string."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise InputError(f"--set {text!r}: must be key=value, for example --set algorithm.rho=1.5")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def apply_overrides(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with dotted keys replaced. Naming another algorithm drops the settings of the one before."""
    result = _copy_tables(tables)
    new_name = changes.get("algorithm.name")
    old = result.get("algorithm", {})
    if new_name is not None and isinstance(old, dict) and old.get("name") != new_name:
        result["algorithm"] = {}
    for key, value in changes.items():
        *path, last = key.split(".")
        table = result
        for part in path:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise InputError(f"{key}: {part!r} is a value, not a table")
        table[last] = value
    return result


def _copy_tables(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy_tables(value) if isinstance(value, Mapping) else value for key, value in tables.items()}


TABLES: dict[str, type[Table]] = {
    "": Experiment,
    "data": DataSettings,
    "data.partition": PartitionSettings,
    "data.augmentation": AugmentationSettings,
    "data.private": PrivateSettings,
    "model": ModelSettings,
    "client": ClientSettings,
    "server": ServerSettings,
    "faults": FaultSettings,
    "engine": EngineSettings,
    "privacy": PrivacySettings,
}
"""Every table of the experiment file but `[algorithm]`, whose keys are the algorithm's own."""


def differing_keys(one: Experiment, other: Experiment) -> list[str]:
    """Dotted keys in which two experiments differ, but for those that cannot change a result."""
    left, right = flatten(one.model_dump()), flatten(other.model_dump())
    keys = sorted((left.keys() | right.keys()) - (keys_without_effect(one) & keys_without_effect(other)))
    return [key for key in keys if left.get(key) != right.get(key)]


def keys_without_effect(experiment: Experiment) -> set[str]:
    """Dotted keys that cannot change the result of this experiment."""
    from fedsol.algorithms import make_algorithm

    own = make_algorithm(experiment.algorithm).settings_without_effect()
    return KEYS_WITHOUT_EFFECT | {f"algorithm.{name}" for name in own}


def flatten(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted keys."""
    result: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            result.update(flatten(value, f"{prefix}{key}."))
        else:
            result[prefix + key] = value
    return result
