"""FedGAMMA: SCAFFOLD with sharpness-aware local steps."""

from dataclasses import dataclass

from fedsol.algorithms.gradients import Perturbation
from fedsol.algorithms.perturbed import PerturbedAlgorithm
from fedsol.algorithms.scaffold import Scaffold, StepCount
from fedsol.config.fields import NonNegative, setting


@dataclass(frozen=True)
class FedGAMMA(PerturbedAlgorithm):
    """SCAFFOLD whose local gradient is taken at the worst weights within a distance `rho`.

    Dai et al., "FedGAMMA: Federated Learning with Global Sharpness-Aware Minimization", IEEE TNNLS 2023.
    With `rho = 0` it is SCAFFOLD.
    """

    rho: NonNegative = setting(0.1, "length of the perturbation")
    steps: StepCount = setting("momentum-corrected", "how local steps are counted; `plain` ignores momentum")

    @property
    def perturbation(self) -> Perturbation:
        return Perturbation(self.rho, "fixed")

    @property
    def corrector(self) -> Scaffold:
        return Scaffold(steps=self.steps)
