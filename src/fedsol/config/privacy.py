"""`[privacy]`: its table, and when it is on."""

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from fedsol.config.fields import Positive
from fedsol.config.tables import Settings, setting, shown

LARGEST_EPSILON = 1000.0
"""A budget beyond this limits nothing."""

SMALLEST_DELTA = 1e-10
"""A smaller probability is not far enough from the rounding of the distributions that epsilon is computed from."""

SMALLEST_NOISE, LARGEST_NOISE = 0.01, 1e6
"""Of the multipliers other than 0: less protects nobody, and epsilon cannot be computed for much less."""


class PrivacySettings(Settings):
    """`[privacy]`: differential privacy, turned on by epsilon or a noise multiplier (docs/privacy.md)."""

    level: Literal["client", "example"] = setting(
        "client",
        "whom it protects: clients, by noise on the mean of their updates; or each sample of a client, by noise on the "
        "gradients of local steps (DP-SGD)",
    )
    clipping: Literal["off", "server", "client"] | None = setting(
        None,
        "who clips updates; the server adds the noise (default: the server if `epsilon`, `noise_multiplier` or the "
        "level `example` is set, otherwise off; `client`: nodes of Flower clip too)",
    )
    epsilon: float | None = setting(
        None, "budget of the whole run; no round begins that would exceed it", gt=0, le=LARGEST_EPSILON
    )
    delta: float = setting(1e-5, "probability that more is revealed than epsilon says", ge=SMALLEST_DELTA, lt=1)
    noise_multiplier: float | None = setting(
        None,
        "standard deviation of the noise in the sum of updates, in units of clip_norm: 0, or at least 0.01 (default: "
        "what `epsilon` needs for all rounds, otherwise 1)",
        ge=0,
        le=LARGEST_NOISE,
    )
    clip_norm: Positive | Literal["adaptive"] = setting(
        1.0,
        "maximum norm of an update's change to the weights (`adaptive` follows the norms of the updates), or of the "
        "gradient of a sample",
    )
    clip_quantile: float = setting(0.5, "adaptive: share of the updates that should be no longer", gt=0, lt=1)
    clip_start: float = setting(0.1, "adaptive: maximum norm in round 1", gt=0)
    accountant: Literal["pld", "rdp"] = setting(
        "pld", "how epsilon is computed: by privacy loss distributions, or by Rényi divergences (a larger bound)"
    )

    @property
    def is_on(self) -> bool:
        """Whether anything is clipped and noised."""
        return privacy_is_on(self.model_dump())

    @property
    def covers_clients(self) -> bool:
        """Whether updates are clipped and noised, and not the gradients of samples."""
        return self.is_on and self.level == "client"

    @property
    def covers_samples(self) -> bool:
        """Whether the gradients of samples are clipped and noised, on the clients."""
        return self.is_on and self.level == "example"

    @property
    def first_changed(self) -> str | None:
        """The first key that is not at its default; None if all are."""
        fields = type(self).model_fields
        return next((key for key in fields if getattr(self, key) != fields[key].default), None)

    @property
    def first_norm(self) -> float:
        """The maximum norm of an update in round 1."""
        return self.clip_start if self.clip_norm == "adaptive" else self.clip_norm

    @field_validator("clip_norm", mode="before")
    @classmethod
    def _check_clip_norm(cls, value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value != "adaptive" and not (is_number and 0 < value < math.inf):
            raise ValueError(f"must be 'adaptive' or a finite number greater than 0 (got {shown(value)})")
        return value

    @field_validator("noise_multiplier")
    @classmethod
    def _check_multiplier(cls, value: float | None) -> float | None:
        if value and value < SMALLEST_NOISE:
            raise ValueError(f"must be 0, or at least {SMALLEST_NOISE:g} (got {shown(value)})")
        return value

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        if self.clipping == "off" and (self.epsilon is not None or self.level == "example"):
            raise ValueError("clipping: 'off' is not allowed with epsilon or level = 'example', which need clipping")
        if self.epsilon is not None and self.noise_multiplier == 0:
            raise ValueError("noise_multiplier: 0 is not allowed with epsilon: without noise, epsilon is infinite")
        if self.level == "example" and self.clip_norm == "adaptive":
            raise ValueError("clip_norm: 'adaptive' is not allowed with level = 'example'; allowed: a number")
        if self.level == "example" and self.clipping == "client":
            raise ValueError("clipping: 'client' is not allowed with level = 'example', whose clients always clip")
        if self.clipping == "client" and self.clip_norm == "adaptive":
            raise ValueError("clip_norm: 'adaptive' is not allowed with clipping = 'client'; allowed: a number")
        return self


def privacy_is_on(table: Mapping[str, Any]) -> bool:
    """Return whether the keys of `[privacy]`, valid or not, turn it on."""
    clipping = table.get("clipping")
    if clipping is not None:
        return bool(clipping != "off")
    is_asked_for = any(table.get(key) is not None for key in ("epsilon", "noise_multiplier"))
    return is_asked_for or table.get("level") == "example"
