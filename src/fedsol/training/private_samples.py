"""`[privacy] level = "example"`: what the rounds of a run spend of each client's samples."""

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedsol.core.messages import ServerState, Update
from fedsol.federation.federation import Federation
from fedsol.federation.sampling import sample_clients
from fedsol.privacy.accounting import Mechanism, solve_noise
from fedsol.privacy.noise import SIMULATED
from fedsol.runs.rows import Row

log = logging.getLogger(__name__)


def finite(epsilon: float) -> float | None:
    """Return epsilon, or None without noise: JSON has no infinity."""
    return epsilon if math.isfinite(epsilon) else None


@dataclass
class PrivateSamples:
    """Clients clip and noise the gradients of their steps; the server counts how often each of them was asked.

    A client has an account of its own, since other clients' rounds tell nothing of its samples. In a simulation the
    clients of every round are known, so the account of a round follows from its number.
    """

    federation: Federation
    round: int = 0
    _jobs: list[Counter[int]] = field(default_factory=lambda: [Counter()])
    """How many jobs each client had after so many rounds."""

    @property
    def is_spent(self) -> bool:
        """Whether another round would exceed the budget of a client."""
        budget = self.federation.experiment.privacy.epsilon
        return budget is not None and self.epsilon_after(self.round + 1) > budget

    def sample(self, round_number: int) -> list[int]:
        """Return the clients of a round."""
        return sample_clients(self.federation.experiment, self.federation.clients, round_number)

    def release(
        self, before: ServerState, updates: Sequence[Update], round_number: int
    ) -> tuple[Sequence[Update], ServerState, int]:
        """Return the updates as they are: their noise is in them."""
        self.round = round_number
        return updates, before, 0

    def announce(self, rounds: int) -> None:
        """Say what the run will spend."""
        settings = self.federation.experiment.privacy
        log.warning(
            "privacy of samples: noise_multiplier = %g: epsilon at most %.4g after %d rounds, delta %g; %s",
            *(settings.noise_multiplier, self.epsilon_after(rounds), rounds, settings.delta, SIMULATED),
        )

    def resume(self, rows: Sequence[Row], rounds: int) -> None:
        """Continue after so many rounds."""
        self.round = rounds

    def epsilon_after(self, rounds: int) -> float:
        """Return the epsilon of the client that has spent most after so many rounds."""
        jobs = self.jobs_after(rounds)
        return max((self.epsilon_of(client, jobs) for client in jobs), default=0.0)

    def epsilon_of(self, client: int, jobs: Mapping[int, int]) -> float:
        """Return what a client has spent after so many jobs of each."""
        settings = self.federation.experiment.privacy
        mechanism, steps = mechanism_of_steps(self.federation, client, settings.noise_multiplier or 0.0)
        return mechanism.epsilon(jobs[client] * steps, settings.delta)

    def jobs_after(self, rounds: int) -> Counter[int]:
        """Return how many jobs each client had after so many rounds, whether it answered or not."""
        while len(self._jobs) <= rounds:
            self._jobs.append(self._jobs[-1] + Counter(self.sample(len(self._jobs))))
        return self._jobs[rounds]

    def columns(self, before: ServerState) -> dict[str, Any]:
        """Return what the row of a round says."""
        settings, jobs = self.federation.experiment.privacy, self.jobs_after(self.round)
        return {
            "epsilon": finite(self.epsilon_after(self.round)),
            "delta": settings.delta,
            "epsilon_next": finite(self.epsilon_after(self.round + 1)),
            "client_epsilon": [finite(self.epsilon_of(client, jobs)) for client in self.sample(self.round)],
            "clip_norm": settings.first_norm,
            "unit": "sample",
            "noise": SIMULATED,
        }


def mechanism_of_steps(federation: Federation, client: int, noise: float) -> tuple[Mechanism, int]:
    """Return what each local step of a client releases, and how many steps a job has at most."""
    samples = len(federation.training_samples(client))
    batch = min(federation.experiment.client.batch_size, samples)
    accountant = federation.experiment.privacy.accountant
    return Mechanism(batch, samples, noise, accountant), federation.steps_of(samples, 1.0)


def noise_for_samples(federation: Federation) -> float:
    """Return the noise multiplier: the experiment's, the least by which no client spends more than epsilon, or 1."""
    settings, rounds = federation.experiment.privacy, federation.experiment.rounds
    assert rounds is not None
    if settings.noise_multiplier is not None:
        return settings.noise_multiplier
    if settings.epsilon is None:
        return 1.0
    asked = [
        (*mechanism_of_steps(federation, client, 0.0), jobs)
        for client, jobs in PrivateSamples(federation).jobs_after(rounds).items()
    ]
    noise = 0.0
    # The small ones that are asked often spend most; after these, hardly any other needs more noise.
    for mechanism, steps, jobs in sorted(asked, key=lambda one: -one[2] * one[0].sampled / one[0].total):
        spent = replace(mechanism, noise_multiplier=noise).epsilon(jobs * steps, settings.delta)
        if spent > settings.epsilon:
            noise = solve_noise(mechanism, jobs * steps, settings.epsilon, settings.delta)
    return noise
