"""`[privacy] level = "example"`: what the rounds of a run spend of each client's samples."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from fedsol.algorithms import make_algorithm
from fedsol.config.experiment import Experiment
from fedsol.config.privacy import PrivacySettings
from fedsol.core.messages import EPSILONS, ServerState, Update
from fedsol.errors import RunError
from fedsol.federation.local_training import steps_of
from fedsol.federation.private_steps import step_mechanism
from fedsol.federation.sampling import sample_clients
from fedsol.privacy.accounting import Mechanism, solve_noise
from fedsol.privacy.noise import FROM_SYSTEM, SIMULATED
from fedsol.runs.rows import Row

log = logging.getLogger(__name__)


def finite(epsilon: float) -> float | None:
    """Return epsilon, or None without noise: JSON has no infinity."""
    return epsilon if math.isfinite(epsilon) else None


LESS = 0.999
"""An epsilon that is smaller by more than rounding."""


def check_origin(rows: Sequence[Row], words: str) -> None:
    """Raise `RunError` if the noise of a run's rows comes from elsewhere: what they spent would be mixed up."""
    before = rows[-1].get("noise", words) if rows else words
    if before != words:
        raise RunError(
            f"metrics.jsonl: its rounds have {before!r}, and the next would have {words!r}: a simulation cannot be "
            "resumed as a deployment, nor a deployment as a simulation"
        )


def check_spent(row: Row, epsilon: float) -> None:
    """Raise `RunError` if the settings give less than what a row says was spent with them: they are not the same."""
    recorded = math.inf if row["epsilon"] is None else row["epsilon"]
    if epsilon < LESS * recorded:
        raise RunError(
            f"metrics.jsonl has epsilon = {recorded:.4g} after round {row['round']}, and with the settings of "
            f"experiment.toml it would be {epsilon:.4g}: an account cannot be reset, so the run cannot be resumed"
        )


@dataclass(frozen=True)
class Spent:
    """What a client has spent, and what it will have spent after one more job."""

    epsilon: float = 0.0
    after: float = 0.0

    @classmethod
    def of(cls, update: Update) -> Self:
        """Return what comes with an update of a node."""
        return cls(*(update.metrics[name] for name in EPSILONS))


@dataclass
class PrivateSamples:
    """Clients clip and noise the gradients of their steps; the server counts how often each of them was asked.

    A client has an account of its own, since other clients' rounds tell nothing of its samples. In a simulation the
    clients of every round are known, so the account of a round follows from its number.
    """

    experiment: Experiment
    sizes: Sequence[int]
    """How many samples each client trains on."""
    round: int = 0
    _jobs: list[Counter[int]] = field(default_factory=lambda: [Counter()])
    """How many jobs each client had after so many rounds."""

    @property
    def is_spent(self) -> bool:
        """Whether another round would exceed the budget of a client."""
        budget = self.experiment.privacy.epsilon
        return budget is not None and self.epsilon_after(self.round + 1) > budget

    def sample(self, round_number: int) -> list[int]:
        """Return the clients of a round."""
        return sample_clients(self.experiment, len(self.sizes), round_number)

    def receive(self, update: Update) -> str | None:
        """Return why an update must be rejected: for no reason of privacy."""

    def release(
        self, before: ServerState, updates: Sequence[Update], round_number: int
    ) -> tuple[Sequence[Update], ServerState, int]:
        """Return the updates as they are: their noise is in them."""
        self.round = round_number
        return updates, before, 0

    def announce(self, rounds: int) -> None:
        """Say what the run will spend."""
        settings = self.experiment.privacy
        log.warning(
            "privacy of samples: noise_multiplier = %g: epsilon at most %.4g after %d rounds, delta %g%s; %s",
            *(settings.noise_multiplier, self.epsilon_after(rounds), rounds, settings.delta),
            *(f", {self.epsilon_after(self.round):.4g} of it is spent" if self.round else "", SIMULATED),
        )

    def begin(self) -> None:
        """Start a new run: nothing is spent."""

    def resume(self, rows: Sequence[Row], rounds: int) -> None:
        """Continue after so many rounds."""
        check_origin(rows, SIMULATED)
        if rows and "epsilon" in rows[-1]:
            check_spent(rows[-1], self.epsilon_after(len(rows)))
        self.round = rounds

    def epsilon_after(self, rounds: int) -> float:
        """Return the epsilon of the client that has spent most after so many rounds."""
        jobs = self.jobs_after(rounds)
        return max((self.epsilon_of(client, jobs) for client in jobs), default=0.0)

    def epsilon_of(self, client: int, jobs: Mapping[int, int]) -> float:
        """Return what a client has spent after so many jobs of each."""
        mechanism, steps = self.job_of(client)
        return mechanism.epsilon(jobs[client] * steps, self.experiment.privacy.delta)

    def job_of(self, client: int) -> tuple[Mechanism, int]:
        """Return what a local step of a client releases, and how many steps a job has at most."""
        samples, algorithm = self.sizes[client], make_algorithm(self.experiment.algorithm)
        return step_mechanism(self.experiment, samples), steps_of(samples, 1.0, self.experiment.client, algorithm)

    def jobs_after(self, rounds: int) -> Counter[int]:
        """Return how many jobs each client had after so many rounds, whether it answered or not."""
        while len(self._jobs) <= rounds:
            self._jobs.append(self._jobs[-1] + Counter(self.sample(len(self._jobs))))
        return self._jobs[rounds]

    def columns(self, before: ServerState) -> dict[str, Any]:
        """Return what the row of a round says."""
        settings, jobs = self.experiment.privacy, self.jobs_after(self.round)
        return {
            "epsilon": finite(self.epsilon_after(self.round)),
            "delta": settings.delta,
            "epsilon_next": finite(self.epsilon_after(self.round + 1)),
            "client_epsilon": [finite(self.epsilon_of(client, jobs)) for client in self.sample(self.round)],
            "clip_norm": settings.first_norm,
            "unit": "sample",
            "noise": SIMULATED,
        }


@dataclass
class DeployedSamples(PrivateSamples):
    """In a deployment each node has its own account, and abstains where it would exceed a budget.

    An epsilon follows from counts and settings, so nodes tell theirs. The server shows what it was told; whatever
    becomes of its files, the account is the node's.
    """

    told: dict[int, Spent] = field(default_factory=dict)
    """What each client has spent, as far as it has told; the sizes of private data are not known."""

    @property
    def epsilon(self) -> float:
        """The largest of any client."""
        return max((spent.epsilon for spent in self.told.values()), default=0.0)

    @property
    def epsilon_next(self) -> float:
        """The largest after another round, which only those that may spend more take part in."""
        budget = self.experiment.privacy.epsilon
        after = [spent.after for spent in self.told.values()]
        affordable = [epsilon for epsilon in after if budget is None or epsilon <= budget]
        if affordable or len(self.told) < len(self.sizes):
            return max([self.epsilon, *affordable])
        return min(after)

    @property
    def is_spent(self) -> bool:
        """Whether another round would exceed the budget of every client."""
        budget = self.experiment.privacy.epsilon
        return budget is not None and self.epsilon_next > budget

    def receive(self, update: Update) -> str | None:
        """Take in what a client has spent; return why its update must be rejected, or None."""
        spent, known = Spent.of(update), self.told.get(update.client)
        budget = self.experiment.privacy.epsilon
        if budget is not None and spent.epsilon > budget:
            return f"has spent epsilon = {spent.epsilon:.4g}, more than privacy.epsilon = {budget:g}"
        if known and spent.epsilon < known.epsilon:
            return f"has spent epsilon = {spent.epsilon:.4g}, less than the {known.epsilon:.4g} that it had before"
        self.told[update.client] = spent
        return None

    def announce(self, rounds: int) -> None:
        """Say who accounts for what."""
        settings = self.experiment.privacy
        budget = "" if settings.epsilon is None else f" and abstains where it would exceed {settings.epsilon:g}"
        log.warning(
            "privacy of samples: noise_multiplier = %g, delta %g; every node keeps its own account%s%s; %s",
            *(settings.noise_multiplier, settings.delta, budget),
            *(f"; epsilon = {self.epsilon:.4g} is spent so far" if self.told else "", FROM_SYSTEM),
        )

    def resume(self, rows: Sequence[Row], rounds: int) -> None:
        """Remember what clients have told, in rounds that will be repeated too."""
        check_origin(rows, FROM_SYSTEM)
        self.round = rounds
        for row in rows:
            columns = (row["client_ids"], row["client_epsilon"], row["client_epsilon_next"])
            for client, *values in zip(*columns, strict=True):
                self.told[client] = Spent(*(math.inf if value is None else value for value in values))

    def columns(self, before: ServerState) -> dict[str, Any]:
        """Return what the row of a round says."""
        settings = self.experiment.privacy
        found = [self.told.get(client, Spent()) for client in self.sample(self.round)]
        return {
            "epsilon": finite(self.epsilon),
            "delta": settings.delta,
            "epsilon_next": finite(self.epsilon_next),
            "client_epsilon": [finite(spent.epsilon) for spent in found],
            "client_epsilon_next": [finite(spent.after) for spent in found],
            "clip_norm": settings.first_norm,
            "unit": "sample",
            "noise": FROM_SYSTEM,
        }


def chosen_noise(settings: PrivacySettings, solve: Callable[[float], float]) -> float:
    """Return the noise multiplier: the one that is set, what the budget needs, or 1 without a budget."""
    if settings.noise_multiplier is not None:
        return settings.noise_multiplier
    return 1.0 if settings.epsilon is None else solve(settings.epsilon)


def noise_for_samples(experiment: Experiment, sizes: Sequence[int]) -> float:
    """Return the noise multiplier of local steps."""
    return chosen_noise(experiment.privacy, lambda epsilon: _solve_for_samples(experiment, sizes, epsilon))


def _solve_for_samples(experiment: Experiment, sizes: Sequence[int], epsilon: float) -> float:
    """Return the least noise multiplier by which no client spends more than epsilon."""
    assert experiment.rounds is not None
    samples, delta = PrivateSamples(experiment, sizes), experiment.privacy.delta
    asked = [(*samples.job_of(client), jobs) for client, jobs in samples.jobs_after(experiment.rounds).items()]
    noise = 0.0
    # The small ones that are asked often spend most; after these, hardly any other needs more noise.
    for mechanism, steps, jobs in sorted(asked, key=lambda one: -one[2] * one[0].sampled / max(1, one[0].total)):
        if replace(mechanism, noise_multiplier=noise).epsilon(jobs * steps, delta) > epsilon:
            noise = solve_noise(mechanism, jobs * steps, epsilon, delta)
    return noise
