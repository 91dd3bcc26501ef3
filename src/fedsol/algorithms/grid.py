"""Perturbed: the perturbation family as one grid of direction, strength, part and correction."""

from dataclasses import dataclass
from typing import Literal

from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.directions import (
    Consensus,
    Direction,
    LastChange,
    LocalGradient,
    ProximalGradient,
    ScaledLocalGradient,
    ServerMomentum,
)
from fedsol.algorithms.fedcm import FedCM
from fedsol.algorithms.feddyn import FedDyn
from fedsol.algorithms.fedsol import ProximalName, proximal_by_name
from fedsol.algorithms.gradients import DEFAULT_STRENGTH, Perturbation, Strength
from fedsol.algorithms.perturbed import PerturbedAlgorithm
from fedsol.algorithms.scaffold import Scaffold
from fedsol.algorithms.task import Where
from fedsol.config.fields import NonNegative, Positive, setting

DirectionName = Literal["local", "local-scaled", "proximal", "last-change", "momentum", "control"]
CorrectionName = Literal["none", "control", "dynamic", "momentum"]

FIXED_ONLY: dict[DirectionName, str] = {
    "local-scaled": "its Lambda is |w|",
    "control": "its dual variables agree on perturbations of one length, rho",
}
"""Directions that come with their own strength, and why."""


@dataclass(frozen=True)
class Perturbed(PerturbedAlgorithm):
    """Local gradient at weights perturbed along any direction, with any correction; named methods are special cases.

    `g = correct(grad L(w + eps))`, `eps = rho Lambda (.) d / ||d||`: see docs/algorithms/perturbed.md. With its
    defaults it is FedSOL; with `rho = 0` it is the method of its correction.
    """

    direction: DirectionName = setting(
        "proximal", "gradient of the local or proximal loss, last global change, momentum, or dual variables (control)"
    )
    rho: NonNegative = setting(2.0, "strength of the perturbation")
    strength: Strength = setting(
        DEFAULT_STRENGTH, "Lambda: 1 (fixed), or |w - a| over its norm per tensor or per column"
    )
    perturb: Where = setting("head", "what is perturbed: all weights, all but the classifier, or the classifier alone")
    proximal: ProximalName = setting("kl", "proximal: the proximal loss")
    tau: Positive = setting(3.0, "proximal: temperature of the divergences")
    correction: CorrectionName = setting(
        "none", "correction of the gradient: none, or that of SCAFFOLD, FedDyn or FedCM"
    )
    alpha: Positive = setting(0.1, "dynamic: strength of the regularizer; momentum: share of the local gradient")

    def __post_init__(self) -> None:
        if self.direction in FIXED_ONLY and self.strength != "fixed":
            raise ValueError(
                f"strength: {self.strength!r} is not allowed with direction = {self.direction!r}: "
                f"{FIXED_ONLY[self.direction]}; allowed: 'fixed'"
            )
        if self.correction == "momentum" and self.alpha > 1:
            raise ValueError(
                f"alpha: must be at most 1 with correction = 'momentum', where it is a share (got {self.alpha:g})"
            )

    @property
    def perturbation(self) -> Perturbation:
        along_a_change = self.direction in ("last-change", "momentum")
        return Perturbation(self.rho, self.strength, self.perturb, along_a_change)

    @property
    def along(self) -> Direction:
        if self.direction == "proximal":
            return ProximalGradient(proximal_by_name(self.proximal, self.tau))
        if self.direction == "control":
            return Consensus(self.rho)
        directions: dict[str, type[Direction]] = {
            "local": LocalGradient,
            "local-scaled": ScaledLocalGradient,
            "last-change": LastChange,
            "momentum": ServerMomentum,
        }
        return directions[self.direction]()

    @property
    def corrector(self) -> Algorithm:
        if self.correction == "dynamic":
            return FedDyn(alpha=self.alpha)
        if self.correction == "momentum":
            return FedCM(self.alpha)
        return Scaffold() if self.correction == "control" else Algorithm()

    def settings_without_effect(self) -> frozenset[str]:
        unused = set() if self.direction == "proximal" else {"proximal", "tau"}
        return frozenset(unused if self.correction in ("dynamic", "momentum") else unused | {"alpha"})
