"""Tables of the experiment file that say where and among whom an experiment runs."""

from typing import Annotated, Literal

from pydantic import Field

from fedsol.config.validation import Table


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
