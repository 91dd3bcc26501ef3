"""FedExP: the server's step is longer where the clients' changes disagree."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedsol.algorithms.base import Algorithm
from fedsol.config.fields import NonNegative, setting
from fedsol.core.messages import ServerState, Update
from fedsol.core.weights import add, norm, pick, subtract


@dataclass(frozen=True)
class FedExP(Algorithm):
    """Multiplies the mean change by `max(1, sum_i p_i ||D_i||^2 / (2 (||mean D||^2 + epsilon)))`.

    Jhunjhunwala et al., "FedExP: Speeding Up Federated Averaging via Extrapolation", ICLR 2023, with the
    clients' shares `p_i`. With one client it is FedAvg.
    """

    compares_updates = True

    epsilon: NonNegative = setting(1e-3, "keeps the step finite when the mean change is near 0")

    def aggregate(self, server: ServerState, updates: Sequence[Update]) -> ServerState:
        averaged, anchor = super().aggregate(server, updates), pick(server.weights, server.parameters)
        change = subtract(pick(averaged.weights, anchor), anchor)
        squares = (update.share * float(norm(subtract(anchor, update.weights))) ** 2 for update in updates)
        divisor = 2 * (float(norm(change)) ** 2 + self.epsilon)
        step = sum(squares) / divisor if divisor else 1.0
        if step <= 1:
            return averaged
        return replace(averaged, weights={**averaged.weights, **add(anchor, change, step)})
