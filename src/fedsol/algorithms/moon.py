"""MOON: features drawn to the anchor's and away from those of the client's previous model."""

from dataclasses import dataclass

from fedsol.algorithms.proximal import Contrastive, Proximal
from fedsol.algorithms.proximal_base import ProximalAlgorithm
from fedsol.algorithms.task import Task
from fedsol.config.fields import NonNegative, Positive, setting
from fedsol.config.task import SAMPLE_KINDS
from fedsol.core.messages import State
from fedsol.core.weights import Weights, clone, prefixed, without_prefix

PREVIOUS = "previous"


@dataclass(frozen=True)
class MOON(ProximalAlgorithm):
    """Adds a contrastive loss on the features: the anchor is the positive, the client's previous model the negative.

    Li, He and Song, "Model-Contrastive Federated Learning", CVPR 2021, equation 3, on the features that enter the head
    (no projection head). A client that never trained has the initial weights as its previous model. With `mu = 0` it is
    FedAvg.
    """

    tasks = SAMPLE_KINDS

    mu: NonNegative = setting(0.1, "auxiliary: factor of the contrastive loss")
    tau: Positive = setting(0.5, "temperature of the similarities")

    def __post_init__(self) -> None:
        if self.usage == "perturbed" and self.perturb == "head":
            raise ValueError(
                "perturb: 'head' is not allowed with MOON: its loss compares the features that enter the head and does "
                "not depend on the head, so there is no direction to perturb it in; allowed: 'all' or 'body'"
            )

    def init_client(self, parameters: Weights, buffers: Weights) -> State:
        return prefixed(PREVIOUS, {**parameters, **buffers})

    def proximal_loss(self, task: Task, state: State) -> Proximal:
        return Contrastive(without_prefix(PREVIOUS, state), self.tau)

    @property
    def coefficient(self) -> float:
        return self.mu

    def finish(self, task: Task, weights: Weights, steps: int, state: State) -> tuple[State, State]:
        return prefixed(PREVIOUS, clone({**weights, **task.buffers})), {}
