"""FedACG: clients start where the server's momentum leads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedsol.algorithms import controls
from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.controls import MOMENTUM
from fedsol.algorithms.proximal import L2
from fedsol.algorithms.task import Point
from fedsol.config.fields import NonNegative, Share, setting
from fedsol.core.messages import ServerState, State, Update
from fedsol.core.weights import Weights, add, pick, prefixed, scale, subtract, without_prefix


@dataclass(frozen=True)
class FedACG(Algorithm):
    """Sends `a = w + lam m`, the global weights moved by momentum, and draws clients to it by `beta / 2 ||w - a||^2`.

    Kim et al., "Communication-Efficient Federated Learning with Accelerated Client Gradient", CVPR 2024.
    `w`, the clients' average, is evaluated, not what is sent. With `lam = 0` and `beta = 0` it is FedAvg.
    """

    lam: Share = setting(0.85, "share of the momentum kept each round")
    beta: NonNegative = setting(0.01, "factor of the squared distance")

    def init_server(self, parameters: Weights) -> State:
        return controls.initial(MOMENTUM, parameters)

    def broadcast(self, server: ServerState) -> State:
        return {}

    def sent(self, server: ServerState) -> Weights:
        return add(server.weights, without_prefix(MOMENTUM, server.state), self.lam)

    def corrected(self, local: Weights, point: Point, state: State) -> Weights:
        return add(local, L2().gradient(point, "all"), self.beta)

    def aggregate(self, server: ServerState, updates: Sequence[Update]) -> ServerState:
        """`m <- lam m + mean(w_i - a)`."""
        averaged = super().aggregate(server, updates)
        moved = subtract(pick(averaged.weights, server.parameters), server.weights)
        momentum = add(scale(without_prefix(MOMENTUM, server.state), self.lam), moved)
        return replace(averaged, state=prefixed(MOMENTUM, momentum))
