"""The tables of the experiment file, and the wording of errors in them: the field, what is allowed, the value."""

import difflib
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fedsol.config.fields import LARGEST_COUNT, Count, Pixels, Positive, Side
from fedsol.errors import InputError

PRIVATE = "private"
"""The name of data that only the nodes of a deployment have."""
IN_MEMORY = "in-memory"
"""The name of data that was passed to `fedsol.train`."""
BY_CLASS = ("sharding", "dirichlet", "dirichlet-client", "classes")
"""The kinds of partitions that need a class for every sample."""

LONGEST_VALUE = 120
"""Characters of a value that an error shows."""


class Settings(BaseModel):
    """A table of settings: unknown keys and wrong types are errors, nothing is converted silently."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)


def setting(default: Any, description: str = "", **bounds: Any) -> Any:
    """Return a field of a table: its default, its line on the reference page, and pydantic's bounds."""
    return Field(default, description=description, **bounds)


class PartitionSettings(Settings):
    """`[data.partition]`: how the training set is split among clients."""

    kind: Literal[
        "iid", "sharding", "dirichlet", "dirichlet-client", "classes", "quantity", "file", "own", "own-grouped"
    ] = setting("dirichlet", "`own` uses the client ids in the data; it is the default if `data.client` is set")
    clients: Count | None = setting(None, "number of clients (default: the paper's)")
    alpha: float = setting(0.1, "dirichlet, dirichlet-client: concentration; smaller is more heterogeneous", gt=0)
    cap: bool = setting(True, "dirichlet: a client that has reached the average size gets no further classes")
    min_size: Count = setting(10, "dirichlet, quantity: minimum number of samples per client")
    classes: Count = setting(2, "classes: number of classes per client")
    sizes: Literal["log-normal", "power-law"] = setting("log-normal", "quantity: distribution of the clients' sizes")
    skew: float = setting(
        1.0,
        "quantity: standard deviation of the log sizes, or exponent of the power law; 0 for equal sizes",
        ge=0,
        le=100,
    )
    shards: Count = setting(2, "sharding: shards per client")
    balance: Literal["size", "class"] = setting(
        "size", "sharding: shards of equal size, or the same number of shards per class"
    )
    file: str = setting("", "file: a partition manifest or a JSON list of index lists")
    held_out: float = setting(0.0, "share of each client's samples that form its hold-out set", ge=0, lt=1)
    unseen: float = setting(
        0.0, "share of the clients that never take part; `fedsol personalize` reports them separately", ge=0, lt=1
    )


class AugmentationSettings(Settings):
    """`[data.augmentation]`: overrides the dataset's training transform, key by key."""

    pad: Pixels | None = setting(None, "pad by this many pixels and crop back")
    pad_mode: Literal["zero", "reflect"] | None = setting(None, "what to pad with: zeros, or the mirrored image")
    flip: bool | None = setting(None, "mirror half of the images")
    cutout: Pixels | None = setting(None, "side of the square that is blanked out; 0 for none")


class PrivateSettings(Settings):
    """`[data.private]`: what the data of all nodes has in common, if `data.name = "private"`."""

    shape: list[Count] = setting([], "shape of one input: [channels, height, width] for images, any shape for features")
    inputs: Literal["images", "features", "table"] = setting("images", "uint8 images, floats, or rows of columns")
    numbers: dict[str, list[float]] = setting({}, "table: columns of numbers, each with the mean and std that scale it")
    categories: dict[str, list[str]] = setting({}, "table: columns of categories, each with all its values")
    classes: int | None = setting(None, "number of classes, if labels are numbers (0, 1, 2 …)", ge=2, le=LARGEST_COUNT)
    class_names: list[str] = setting([], "names of the classes, if labels or folders have names")
    mean: list[float] = setting([0.5], "of pixels in 0 … 1, by channel; of floats to standardize", min_length=1)
    std: list[Positive] = setting([0.5], "standard deviation, likewise", min_length=1)
    target_mean: list[float] = setting([], "regression: mean of each target, with which all nodes standardize")
    target_std: list[Positive] = setting([], "regression: standard deviation of each target")
    test: str | None = setting(None, "the server's own test set, if it has one: a table, .npz file or image folder")

    @field_validator("numbers")
    @classmethod
    def _check_numbers(cls, numbers: dict[str, list[float]]) -> dict[str, list[float]]:
        for name, scale in numbers.items():
            if len(scale) != 2 or scale[1] <= 0:
                raise ValueError(f"{name!r} must be [mean, std], with std greater than 0 (got {shown(scale)})")
        return numbers


class DataSettings(Settings):
    """`[data]`: which data, and where it is."""

    name: str = setting(
        "digits",
        "name of a dataset, a .csv, .parquet or .npz file, an image folder, `hf:NAME` of a Hugging Face dataset, or "
        "`module:function`; `private`: only the nodes have it",
        min_length=1,
    )
    root: str = setting("data", "folder that holds the named datasets")
    download: bool = setting(True, "download missing files of a named dataset")
    channels: Literal[1, 3] | None = setting(None, "channels of the model's input (default: the dataset's)")
    image_size: Side | None = setting(None, "image folders: resize to this width and height")
    layout: Literal["class", "client/class"] = setting("class", "image folders: what the folder levels mean")
    test_fraction: float | None = setting(
        None, "your own data without a test set: share that becomes the test set", gt=0, lt=1
    )
    test: str | None = setting(None, "tables: file with the test rows; Hugging Face: name of the test split")
    target: str | list[str] | None = setting(None, "tables: column to predict; a list for several targets or labels")
    features: list[str] = setting([], "tables: columns that are the model's input (default: all others)")
    categorical: list[str] = setting([], "tables: numeric columns to treat as categories; text columns always are")
    client: str | None = setting(None, "tables: column with the client of each row")
    missing: Literal["refuse", "mean", "median"] = setting(
        "refuse", "tables: what replaces missing numbers, from the training rows; missing text is a category"
    )
    separator: str | None = setting(
        None, "CSV: character between columns (default: detected)", min_length=1, max_length=1
    )
    standardize: bool = setting(False, "float arrays: scale by mean and deviation of the training samples")
    cache: str | None = setting(
        None, "image folders, large tables: folder for decoded images and rows (default: beside the data)"
    )
    part: float = setting(
        1.0, "for a quick trial: share of each client's samples and of the test set to use", gt=0, le=1
    )
    shift: Literal["none", "invert", "rotate", "dim", "mixed"] = setting(
        "none",
        "feature skew: `invert` or `dim` changes the images of every second client; `rotate` turns those of client k "
        "by k mod 4 quarters; `mixed`: client by client unchanged, inverted, turned, dimmed",
    )
    validation: float = setting(
        0.0, "share of the training samples held back to choose the best round; no client trains on it", ge=0, lt=1
    )
    validation_by: Literal["client", "central"] = setting(
        "client", "who holds the validation samples: each client its own, or the server (`central`)"
    )
    partition: PartitionSettings = PartitionSettings()
    augmentation: AugmentationSettings = AugmentationSettings()
    private: PrivateSettings = PrivateSettings()

    @property
    def short_name(self) -> str:
        """The name without folders and suffix: of a file, or of the function in it."""
        return Path(self.name.rpartition(":")[2]).stem

    @field_validator("target", mode="before")
    @classmethod
    def _check_target(cls, value: Any) -> Any:
        columns = value if isinstance(value, list) else [value]
        if value is not None and not (columns and all(isinstance(column, str) for column in columns)):
            raise ValueError(f"must be the name of a column, or a list of names (got {shown(value)})")
        return value

    @model_validator(mode="before")
    @classmethod
    def _follow_the_clients(cls, tables: Any) -> Any:
        """Choose the partition `own` where a column names the clients, unless another is set."""
        if not isinstance(tables, dict) or tables.get("client") is None:
            return tables
        partition = tables.get("partition", {})
        if isinstance(partition, PartitionSettings):
            partition = partition.model_dump(exclude_unset=True)
        return {**tables, "partition": {"kind": "own", **partition}} if isinstance(partition, dict) else tables


class ClientSettings(Settings):
    """`[client]`: local training."""

    epochs: Count = setting(5, "passes over the client's data per round")
    steps: Count | None = setting(None, "local steps per round, the same for every client; replaces `epochs`")
    batch_size: Count = setting(50, "samples per step")
    lr: float = setting(0.01, "learning rate of round 1", gt=0)
    momentum: float = setting(0.9, "momentum of SGD; starts at 0 for every client and round", ge=0, lt=1)
    weight_decay: float = setting(1e-5, "weight decay of the optimizer", ge=0)
    optimizer: str = setting("sgd", "a class of torch.optim; `momentum` is for sgd")
    optimizer_options: dict[str, Any] = setting({}, "further arguments of the optimizer")
    clip_norm: float | None = setting(None, "maximum norm of a gradient; longer ones are clipped", gt=0)
    trains: Literal["all", "body"] = setting(
        "all", "what local training changes: all weights, or all but the classifier (FedBABU's idea)"
    )


class ServerSettings(Settings):
    """`[server]`: rounds as the server sees them."""

    fraction: float | None = setting(None, "share of clients sampled each round (default: the dataset's)", gt=0, le=1)
    weighting: Literal["size", "uniform"] = setting("size", "weights in the average: by number of samples, or equal")
    lr_schedule: Literal["exponential", "cosine"] = setting(
        "exponential", "times `lr_decay` per round, or a cosine from `client.lr` to 0"
    )
    lr_decay: float = setting(0.99, "factor on the learning rate after each round", gt=0, le=1)
    aggregation: Literal["mean", "median", "trimmed-mean", "krum", "geometric-median"] = setting(
        "mean", "how updates are combined; all but `mean` tolerate some faulty updates and ignore client sizes"
    )
    trim: float = setting(
        0.1, "trimmed-mean: share cut off at each end; krum: share of updates assumed faulty", ge=0, lt=0.5
    )
    exchange: str = setting(
        "all",
        "what clients and server exchange: all, body (all but the classifier), head, not-norms, none, or a regular "
        "expression found in the names of weights; the rest stays with each client",
        min_length=1,
    )
    min_updates: Count = setting(1, "minimum number of updates; with fewer, the global model stays unchanged")
    max_update_norm: float | None = setting(
        None, "maximum norm of an update's change to the weights; longer ones are clipped", gt=0
    )
    max_change: float | None = setting(
        None,
        "updates whose change exceeds this multiple of the median of recent changes are rejected; 0 for no bound "
        "(default: 10 in a deployment, 0 in a simulation)",
        ge=0,
    )
    max_share: float | None = setting(
        None,
        "largest weight of one update in the average; the others share the rest by size (default: 0.5 in a deployment "
        "of private data, otherwise 1)",
        gt=0,
        le=1,
    )
    lr: float = setting(
        1.0, "step size of `average`: how far the model moves toward a round's average, as a share", gt=0
    )
    optimizer: Literal["average", "momentum", "adam", "yogi"] = setting(
        "average", "how a round's average is applied: as it is, or by FedAvgM, FedAdam, FedYogi"
    )
    optimizer_lr: float | None = setting(
        None, "learning rate of the server optimizer (default: 1 for momentum, otherwise 0.01)", gt=0
    )
    optimizer_momentum: float = setting(0.9, "momentum of the server optimizer, or beta 1", ge=0, lt=1)
    optimizer_beta2: float = setting(0.99, "beta 2 of adam and yogi", ge=0, lt=1)
    optimizer_epsilon: float = setting(1e-3, "epsilon in the divisor of adam and yogi", gt=0)
    evaluate_every: Count = setting(1, "rounds between global evaluations")
    evaluate_last: Count = setting(1, "number of final rounds that are always evaluated")
    evaluate_clients: Count | None = setting(
        None, "clients that test the global model on their hold-out and validation sets (default: all)"
    )
    evaluate_batch: Count = setting(50, "batch size of evaluations")
    checkpoint_every: Count = setting(1, "rounds between checkpoints")
    patience: Count | None = setting(
        None, "stop after this many evaluated rounds without a better result on the validation set"
    )
    stop_at: float | None = setting(
        None, "stop at this result (accuracy: 0.9) on the validation set; without one, on the test set"
    )

    @field_validator("exchange")
    @classmethod
    def _check_exchange(cls, value: str) -> str:
        return check_pattern(value)

    @field_validator("max_change")
    @classmethod
    def _not_below_the_median(cls, value: float | None) -> float | None:
        if value is not None and 0 < value < 1:
            raise ValueError(f"must be 0 (no bound) or at least 1 (got {value:g}): half of all changes are the median")
        return value


class FaultSettings(Settings):
    """`[faults]`: an unreliable federation, simulated. Shares are probabilities for each sampled client and round."""

    dropout: float = setting(0.0, "probability that a sampled client does not answer", ge=0, le=1)
    stragglers: float = setting(
        0.0, "probability that a sampled client does only a share of its local steps", ge=0, le=1
    )
    straggler_work: float = setting(0.5, "share of the local steps that a straggler does", gt=0, le=1)
    late: float = setting(0.0, "probability that an update arrives one round late", ge=0, le=1)
    corrupted: float = setting(0.0, "probability that an update is corrupted", ge=0, le=1)
    attackers: float = setting(0.0, "share of all clients, drawn once, whose updates are always corrupted", ge=0, le=1)
    corruption: Literal["nan", "noise", "flip", "label-flip", "little-is-enough"] = setting(
        "nan",
        "how updates are corrupted: values that are not finite; random noise; the change with its sign flipped; "
        "training on flipped labels; or all alike, within the spread of honest updates (Baruch et al., 2019)",
    )
    corruption_scale: float = setting(
        1.0, "size of the noise; factor of a flipped change; standard deviations from the honest mean", gt=0
    )


class EngineSettings(Settings):
    """`[engine]`: where clients are trained. `kind` and `workers` change no result; another device may."""

    kind: Literal["local", "workers", "flower"] = setting(
        "workers",
        "`local`: one client after another, in this process; `workers`: in parallel processes; `flower`: in Flower's "
        "simulation, on Ray",
    )
    workers: int | None = setting(None, "number of processes (default: the number of cores)", ge=1, le=1024)
    device: str = setting("cpu", "cpu, cuda (or cuda:1 …), mps or auto")
    precision: Literal["float32", "bfloat16", "float16"] = setting(
        "float32", "of passes through the model; weights, losses, sums stay float32 (`fedsol doctor` compares speeds)"
    )
    address: str | None = setting(None, "flower: address of the Ray cluster to join")
    client_cpus: float = setting(1.0, "flower: CPUs that Ray reserves per client", gt=0)
    client_gpus: float = setting(0.0, "flower: GPUs that Ray reserves per client", ge=0)
    timeout: float = setting(
        3600.0, "seconds to wait: flower, for the updates of a round; workers, for an answer of one process", gt=0
    )
    patience: float = setting(60.0, "flower: seconds to wait for the nodes of a round's clients", ge=0)

    @model_validator(mode="before")
    @classmethod
    def _take_the_old_name(cls, table: Any) -> Any:
        """Read `autocast`, as `precision` was called before, when float32 was no value."""
        if not isinstance(table, dict) or "autocast" not in table:
            return table
        old = {"precision": table["autocast"] or "float32"}
        rest = {key: value for key, value in table.items() if key != "autocast"}
        if rest.get("precision", old["precision"]) != old["precision"]:
            raise ValueError("`autocast` is the old name of `precision`, and they differ; set precision alone")
        return {**rest, **old}

    @field_validator("device")
    @classmethod
    def _check_device(cls, name: str) -> str:
        if not re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?|mps|auto", name):
            allowed = "'cpu', 'cuda', 'cuda:0' (or a higher number), 'mps' or 'auto'"
            raise ValueError(f"must be {allowed} (got {shown(name)})")
        return name


def check_pattern(value: str) -> str:
    """Return a regular expression; raise `ValueError` if it is none."""
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # of a later Python, about `[[`
            re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"must be a regular expression ({error}) (got {shown(value)})") from error
    return value


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `did you mean 'rho'? Allowed: …` for a word that is not among the known ones."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}{'Allowed' if near else 'allowed'}: {', '.join(names)}"


def unknown_name(field: str, value: str, known: Iterable[str]) -> InputError:
    """Return the error for an unknown name."""
    return InputError(f"{field}: unknown value {value!r}; {suggestion(value, known)}")


def check_values(value: Any, field: str = "") -> None:
    """Raise `InputError` for a whole number beyond 64 bits or text that is no Unicode: TOML has neither."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            check_values(inner, f"{field}.{key}" if field else str(key))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            check_values(inner, f"{field}.{number}")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InputError(f"{field}: must be a whole number of at most 64 bits (got {shown(value)})")
    elif isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InputError(f"{ascii(field)[1:-1]}: must be valid Unicode (got {ascii(value)[:LONGEST_VALUE]})")


def shown(value: Any) -> str:
    """Return a value as an error shows it: at most a line, whatever a user wrote."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python prints no number of more than 4300 digits
        return f"a {type(value).__name__} too long to print"
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def input_error(error: ValidationError, where: str, allowed_keys: Mapping[str, Iterable[str]]) -> InputError:
    """Return one `InputError` for everything that pydantic found wrong.

    `where` is prefixed to every field; `allowed_keys` lists the keys of each table (by dotted path) for suggestions.
    """
    return InputError("\n".join(_describe(details, where, allowed_keys) for details in error.errors()))


def _describe(details: Any, where: str, allowed_keys: Mapping[str, Iterable[str]]) -> str:
    path = [str(part) for part in details["loc"]]
    field = ".".join([where, *path] if where else path)
    if details["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        table = ".".join([where, *path[:-1]] if where else path[:-1])
        elsewhere = [f"{other}.{path[-1]}".lstrip(".") for other, keys in allowed_keys.items() if path[-1] in keys]
        if elsewhere:
            return f"{field}: unknown key; did you mean {' or '.join(map(repr, elsewhere))}?"
        return f"{field}: unknown key; {suggestion(path[-1], allowed_keys.get(table, ()))}"
    if details["type"] == "missing":
        return f"{field}: is missing"
    if details["type"] in ("value_error", "assertion_error"):
        reason = str(details["ctx"]["error"])
        return f"{field}: {reason}" if field else reason
    message = details["msg"].replace("Input should be ", "must be ").replace("Input should", "should")
    return f"{field}: {message} (got {shown(details['input'])})"
