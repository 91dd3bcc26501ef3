"""The engine that trains one client after another in this process."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fedsol.core.messages import Job, State, Update
from fedsol.core.weights import Weights
from fedsol.engines.base import Engine
from fedsol.federation.evaluation import Tally
from fedsol.federation.federation import Federation
from fedsol.federation.personal import PersonalResult, personalize_client
from fedsol.federation.personal_settings import PersonalSettings


class LocalEngine(Engine):
    """Nothing but a loop."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation

    def train(self, jobs: Sequence[Job], state_of: Callable[[int], State]) -> Iterator[Update]:
        for job in jobs:
            yield self._federation.train(replace(job, state=state_of(job.client)))

    def evaluate(self, weights: Weights) -> Tally:
        return self._federation.evaluate(weights)

    def evaluate_clients(self, weights: Weights, clients: Sequence[int]) -> Iterator[tuple[int, Tally]]:
        for client in clients:
            yield client, self._federation.evaluate_client(weights, client)

    def personalize(
        self, weights: Weights, clients: Sequence[int], settings: PersonalSettings
    ) -> Iterator[PersonalResult]:
        for client in clients:
            yield personalize_client(self._federation, weights, client, settings)

    def close(self) -> None:
        pass
