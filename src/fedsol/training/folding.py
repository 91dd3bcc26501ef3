"""Folding: the average of a round, formed while its updates arrive."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from fedsol.algorithms.base import Algorithm
from fedsol.config.experiment import Experiment
from fedsol.core.messages import Update
from fedsol.core.statistics import limited_shares
from fedsol.core.weights import RunningMean, Weights
from fedsol.engines.base import AHEAD
from fedsol.federation.faults import COLLUSION
from fedsol.training.guard import Limits

WINDOW = 16
"""Clients in a row of ids, at least, whose jobs are started longest first; those of the next window start later."""

Order = tuple[int, int]
"""The place of an update in the sum: its client, and -1 if it is late, so that it comes before a new one."""


def window_size(workers: int) -> int:
    """Return how many clients are in a window: enough for each worker to have some of them to choose from."""
    return max(WINDOW, 4 * workers)


def held_at_most(clients: int, workers: int) -> int:
    """Return how many updates of a round may be held at once: those of the windows that may be under way."""
    return min(clients, (1 + AHEAD) * window_size(workers))


class Folding:
    """The mean of a round's updates. Each is added, and its tensors dropped, when all before it were added.

    The sizes of all updates must be known before the first arrives. Only what arrives before its turn waits.
    """

    def __init__(self, sizes: Mapping[Order, float], most: float) -> None:
        """`most` is the largest share that an update may have."""
        order = sorted(sizes)
        self._shares = dict(zip(order, limited_shares([sizes[one] for one in order], most), strict=True))
        self._next = deque(order)
        self._mean = RunningMean()
        self.waiting: dict[Order, Update] = {}
        self.updates: list[Update] = []
        """Those added, in order, without their tensors."""

    @property
    def mean(self) -> Weights:
        """The mean, when all have been added."""
        assert not self._next, f"updates are missing: {list(self._next)}"
        return self._mean.total

    def expects(self, order: Order) -> bool:
        """Return whether an update has a share in the mean."""
        return order in self._shares

    def add(self, order: Order, update: Update) -> None:
        """Add an update, and those that waited for it."""
        self.waiting[order] = update
        while self._next and self._next[0] in self.waiting:
            following = self._next.popleft()
            ready, share = self.waiting.pop(following), self._shares[following]
            self._mean.add(ready.weights, share)
            self.updates.append(replace(ready, weights={}, payload={}, share=share))


def reason_to_hold(experiment: Experiment, algorithm: Algorithm, limits: Limits) -> str | None:
    """Return why a simulation must hold all updates of a round until the last has arrived; None if it need not."""
    server, faults = experiment.server, experiment.faults
    if server.aggregation != "mean":
        return f"server.aggregation = {server.aggregation!r} compares them"
    if not algorithm.averages_plainly():
        return f"the server of {experiment.algorithm['name']} does more than average weights"
    if experiment.privacy.is_on:
        return "[privacy] releases their sum"
    if limits.max_change:
        return "server.max_change compares them"
    if faults.corruption == COLLUSION and (faults.corrupted or faults.attackers):
        return f"faults.corruption = {COLLUSION!r} is made of all others"
    return None
