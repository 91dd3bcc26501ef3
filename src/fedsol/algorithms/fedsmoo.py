"""FedSMOO: FedDyn with sharpness-aware local steps on whose perturbation the clients agree."""

from dataclasses import dataclass

from fedsol.algorithms.directions import Consensus
from fedsol.algorithms.feddyn import FedDyn
from fedsol.algorithms.gradients import Perturbation
from fedsol.algorithms.perturbed import PerturbedAlgorithm
from fedsol.config.fields import NonNegative, Positive, setting


@dataclass(frozen=True)
class FedSMOO(PerturbedAlgorithm):
    """FedDyn whose local gradient is taken at weights perturbed along `g_l - mu_i - s`, with dual variables `mu_i`.

    Sun et al., "Dynamic Regularized Sharpness Aware Minimization in Federated Learning", ICML 2023. With
    `rho = 0` it is FedDyn.
    """

    rho: NonNegative = setting(0.1, "length of the perturbation")
    alpha: Positive = setting(0.1, "strength of FedDyn's regularizer")

    @property
    def perturbation(self) -> Perturbation:
        return Perturbation(self.rho, "fixed")

    @property
    def along(self) -> Consensus:
        return Consensus(self.rho)

    @property
    def corrector(self) -> FedDyn:
        return FedDyn(alpha=self.alpha)
