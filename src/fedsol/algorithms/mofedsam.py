"""MoFedSAM: FedCM with sharpness-aware local steps."""

from dataclasses import dataclass

from fedsol.algorithms.fedcm import FedCM
from fedsol.algorithms.gradients import Perturbation
from fedsol.algorithms.perturbed import PerturbedAlgorithm
from fedsol.config.fields import NonNegative, PositiveShare, setting


@dataclass(frozen=True)
class MoFedSAM(PerturbedAlgorithm):
    """FedCM whose local gradient is taken at the worst weights within a distance `rho`.

    Qu et al., "Generalized Federated Learning via Sharpness Aware Minimization", ICML 2022. With `rho = 0`
    it is FedCM.
    """

    rho: NonNegative = setting(0.1, "length of the perturbation")
    alpha: PositiveShare = setting(0.1, "share of the local gradient; the rest is the last round's mean gradient")

    @property
    def perturbation(self) -> Perturbation:
        return Perturbation(self.rho, "fixed")

    @property
    def corrector(self) -> FedCM:
        return FedCM(self.alpha)
