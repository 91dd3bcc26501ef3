"""The tables `[model]` and `[model.lora]`."""

from typing import Any, Self

from pydantic import field_validator, model_validator

from fedsol.config.fields import Count, Positive
from fedsol.config.tables import Settings, check_pattern, setting


class LoraSettings(Settings):
    """`[model.lora]`: train low-rank adapters of linear layers, and the classifier; everything else is frozen."""

    rank: Count | None = setting(None, "rank of an adapter; off by default")
    alpha: Positive = setting(16.0, "adapters are scaled by alpha / rank")
    targets: str | None = setting(
        None,
        "regular expression: layers whose names match get adapters (default: all but the classifier, which is trained "
        "itself unless it is a target)",
        min_length=1,
    )

    @model_validator(mode="after")
    def _check_rank(self) -> Self:
        if self.rank is None and (self.alpha != type(self).model_fields["alpha"].default or self.targets is not None):
            raise ValueError("must have a rank if alpha or targets is set: without it there are no adapters")
        return self

    @field_validator("targets")
    @classmethod
    def _check_targets(cls, value: str | None) -> str | None:
        return value if value is None else check_pattern(value)


class ModelSettings(Settings):
    """`[model]`: which network."""

    name: str | None = setting(
        None, "name of a model, or `module:factory` (default: cnn; small for tiny images, mlp for vectors)"
    )
    head: str | None = setting(None, "name of the classifier layer of your own model (default: detected)")
    options: dict[str, Any] = setting({}, "arguments of the model's factory")
    lora: LoraSettings = LoraSettings()
