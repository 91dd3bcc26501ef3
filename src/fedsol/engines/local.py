"""The engine that trains one client after another in this process."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from fedsol.engines.base import Engine
from fedsol.evaluation import Tally
from fedsol.federation import Federation
from fedsol.messages import Job, State, Update
from fedsol.weights import Weights


class LocalEngine(Engine):
    """One torch thread, so that its sums are those of every other engine bit for bit."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)

    def train(self, jobs: Sequence[Job], state_of: Callable[[int], State]) -> Iterator[Update]:
        for job in jobs:
            yield self._federation.train(replace(job, state=state_of(job.client)))

    def evaluate(self, weights: Weights) -> Tally:
        return self._federation.evaluate(weights)

    def close(self) -> None:
        torch.set_num_threads(self._threads)
