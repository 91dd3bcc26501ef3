"""FedLESAM: weights perturbed along the last change of the global model, with one backward pass."""

from dataclasses import dataclass

from fedsol.algorithms.directions import LastChange
from fedsol.algorithms.feddyn import FedDyn
from fedsol.algorithms.gradients import Perturbation
from fedsol.algorithms.perturbed import PerturbedAlgorithm
from fedsol.algorithms.scaffold import Scaffold, StepCount
from fedsol.config.fields import NonNegative, Positive, setting


@dataclass(frozen=True)
class FedLESAM(PerturbedAlgorithm):
    """Local gradient at weights perturbed along `w_old - a`, the last change of the global model that the client saw.

    Fan et al., "Locally Estimated Global Perturbations are Better than Local Perturbations for Federated
    Sharpness-aware Minimization", ICML 2024. In a client's first job, and with `rho = 0`, it is FedAvg.
    """

    rho: NonNegative = setting(0.1, "length of the perturbation")

    @property
    def perturbation(self) -> Perturbation:
        return Perturbation(self.rho, "fixed")

    @property
    def along(self) -> LastChange:
        return LastChange()


@dataclass(frozen=True)
class FedLESAMS(FedLESAM):
    """FedLESAM with SCAFFOLD's correction (FedLESAM-S). With `rho = 0` it is SCAFFOLD."""

    steps: StepCount = setting("momentum-corrected", "how local steps are counted; `plain` ignores momentum")

    @property
    def corrector(self) -> Scaffold:
        return Scaffold(steps=self.steps)


@dataclass(frozen=True)
class FedLESAMD(FedLESAM):
    """FedLESAM with FedDyn's regularizer (FedLESAM-D). With `rho = 0` it is FedDyn."""

    alpha: Positive = setting(0.1, "strength of FedDyn's regularizer")

    @property
    def corrector(self) -> FedDyn:
        return FedDyn(alpha=self.alpha)
