"""The tables of the experiment file, and the wording of errors in them: the field, what is allowed, the value."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedsol.config import fields
from fedsol.errors import InputError

PRIVATE = "private"
"""The name of data that only the nodes of a deployment have."""


class Table(BaseModel):
    """A table of settings: unknown keys and wrong types are errors, nothing is converted silently."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)


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


class PrivateSettings(Table):
    """`[data.private]`: what all nodes' own data has in common, where `data.name = "private"`."""

    shape: Annotated[
        list[Annotated[int, Field(ge=1)]],
        Field(description="of one input: [channels, height, width] of images, any shape of features"),
    ] = Field(default_factory=list)
    inputs: Annotated[Literal["images", "features"], Field(description="uint8 images, or floats")] = "images"
    classes: Annotated[int | None, Field(ge=2, description="number of classes, if labels are 0, 1, 2 …")] = None
    class_names: Annotated[list[str], Field(description="names of the classes, if labels or folders have names")] = (
        Field(default_factory=list)
    )
    mean: Annotated[list[float], Field(min_length=1, description="of the pixels of images, scaled to 0 … 1")] = Field(
        default_factory=lambda: [0.5]
    )
    std: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1, description="of the same")] = Field(
        default_factory=lambda: [0.5]
    )
    test: Annotated[
        str | None, Field(description="the server's own test set, if it has one: an .npz file or an image folder")
    ] = None


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


class FaultSettings(Table):
    """`[faults]`: an unreliable federation, simulated. Each is a probability for each sampled client and round."""

    dropout: Annotated[float, Field(ge=0, le=1, description="that it never answers")] = 0.0
    stragglers: Annotated[float, Field(ge=0, le=1, description="that it does only a share of its local steps")] = 0.0
    straggler_work: Annotated[float, Field(gt=0, le=1, description="that share")] = 0.5
    late: Annotated[float, Field(ge=0, le=1, description="that its update arrives one round late")] = 0.0
    corrupted: Annotated[float, Field(ge=0, le=1, description="that its update is damaged")] = 0.0
    corruption: Annotated[
        Literal["nan", "noise", "flip"], Field(description="how: not finite, random noise added, or its sign turned")
    ] = "nan"
    corruption_scale: Annotated[float, Field(gt=0, description="size of the noise; length of the turned change")] = 1.0


class EngineSettings(Table):
    """`[engine]`: where clients are trained. Kind and workers change no result; another device rounds differently."""

    kind: Annotated[
        Literal["local", "workers", "flower"],
        Field(
            description="`local`: one client after another, in this process; `workers`: side by side in processes; "
            "`flower`: in Flower's simulation, on Ray"
        ),
    ] = "workers"
    workers: Annotated[int | None, Field(ge=1, description="processes (default: as many as there are cores)")] = None
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?|mps|auto)$", description="cpu, cuda, mps or auto")] = "cpu"
    autocast: Annotated[
        Literal["bfloat16", "float16"] | None, Field(description="reduced precision of passes through the model")
    ] = None
    address: Annotated[str | None, Field(description="flower: address of a Ray cluster to join")] = None
    client_cpus: Annotated[float, Field(gt=0, description="flower: processors that Ray sets aside for a client")] = 1.0
    client_gpus: Annotated[float, Field(ge=0, description="flower: GPUs that Ray sets aside for a client")] = 0.0
    timeout: Annotated[float, Field(gt=0, description="flower: seconds that a round waits for its updates")] = 3600.0
    patience: Annotated[
        float, Field(ge=0, description="flower: seconds that a round waits for the nodes of all its clients")
    ] = 60.0


class PrivacySettings(Table):
    """`[privacy]`: differential privacy of the clients, by Flower's wrappers. Its noise is drawn anew in every run."""

    clipping: Annotated[
        Literal["off", "server", "client"], Field(description="who cuts updates to `clip_norm`; noise is the server's")
    ] = "off"
    clip_norm: Annotated[float, Field(gt=0, description="longest change of the weights that an update brings")] = 1.0
    noise_multiplier: Annotated[
        float, Field(ge=0, description="standard deviation of the noise in the sum of updates, in units of clip_norm")
    ] = 1.0


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `did you mean 'rho'? Allowed: …` for a word that is not among the known ones."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}Allowed: {', '.join(names)}"


def unknown_name(field: str, value: str, known: Iterable[str]) -> InputError:
    """Return the error for a name that no registry has."""
    return InputError(f"{field}: unknown value {value!r}; {suggestion(value, known)}")


def input_error(error: ValidationError, where: str, allowed_keys: Mapping[str, Iterable[str]]) -> InputError:
    """Return one `InputError` for everything that pydantic found wrong.

    `where` is put before every field; `allowed_keys` lists the keys of each table (by its dotted path) for suggestions.
    """
    return InputError("\n".join(_describe(details, where, allowed_keys) for details in error.errors()))


def _describe(details: Any, where: str, allowed_keys: Mapping[str, Iterable[str]]) -> str:
    path = [str(part) for part in details["loc"]]
    field = ".".join([where, *path] if where else path)
    if details["type"] == "extra_forbidden" or details["type"] == "unexpected_keyword_argument":
        table = ".".join([where, *path[:-1]] if where else path[:-1])
        return f"{field}: unknown key; {suggestion(path[-1], allowed_keys.get(table, ()))}"
    if details["type"] == "missing":
        return f"{field}: is missing"
    if details["type"] in ("value_error", "assertion_error"):
        reason = str(details["ctx"]["error"])
        return f"{field}: {reason}" if field else reason
    message = details["msg"].replace("Input should be ", "must be ").replace("Input should", "should")
    return f"{field}: {message} (got {details['input']!r})"
