"""What `[privacy]` makes of the rounds of a run: released quantities clipped, noised and accounted for."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.config.privacy import PrivacySettings
from fedsol.config.tables import PRIVATE
from fedsol.core.messages import ServerState, State, Update
from fedsol.core.weights import Weights, pick
from fedsol.errors import InputError
from fedsol.federation.federation import Federation
from fedsol.federation.private_steps import check_statistics
from fedsol.federation.sampling import sample_clients, sample_size, trains_alone
from fedsol.privacy.account import Account, DeployedAccount
from fedsol.privacy.accounting import Mechanism, require_accounting, solve_noise
from fedsol.privacy.noise import FROM_SYSTEM, SIMULATED, Draw, from_system, secret_sample, simulated
from fedsol.privacy.release import Noise, adapted, clipped_sum, noised_mean, noised_share
from fedsol.runs.rows import Row
from fedsol.training.private_samples import (
    DeployedSamples,
    PrivateSamples,
    check_origin,
    check_spent,
    chosen_noise,
    finite,
    noise_for_samples,
)
from fedsol.training.updates import expected_answers

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Chance:
    """Where the noise and the clients of a round come from."""

    words: str
    """What every output says of the noise."""
    draw_for: Callable[[int], Draw]
    sample: Callable[[int], list[int]]


@dataclass(frozen=True)
class PrivateRounds:
    """The releases of a run: one for every round, of one mechanism."""

    settings: PrivacySettings
    account: Account
    released: tuple[str, ...]
    """Names of the weights that clients train."""
    clients: int
    """How many are sampled for a round."""
    chance: Chance

    @property
    def noise(self) -> Noise:
        """The noise of every release."""
        return Noise(self.account.mechanism.noise_multiplier, self.settings.clip_norm == "adaptive")

    def release(
        self, before: ServerState, updates: Sequence[Update], round_number: int
    ) -> tuple[list[Update], ServerState, int]:
        """Return what the method may see of a round, the server with its next clipping norm, and how many were clipped.

        It sees the noised mean, once for each client that was sampled, and nothing that depends on who answered: so
        whatever it computes is as private as the mean.
        """
        self.account.charge(round_number)
        clip_norm, clients = before.clip_norm or self.settings.first_norm, self.clients
        draw, anchor = self.chance.draw_for(round_number), pick(before.weights, self.released)
        found = clipped_sum(anchor, [update.weights for update in updates], clip_norm)
        mean = noised_mean(found, clip_norm, self.noise, clients, draw)
        weights = {**before.weights, **_moved(anchor, mean)}
        after = before
        if self.noise.adaptive:
            share = noised_share(found, self.noise, clients, draw)
            after = replace(before, clip_norm=adapted(clip_norm, share, self.settings.clip_quantile))
        seen = [Update(client, weights, 1, 1, share=1 / clients) for client in range(clients)]
        return seen, after, found.count - found.short

    def sample(self, round_number: int) -> list[int]:
        """Return the clients of a round."""
        return self.chance.sample(round_number)

    def receive(self, update: Update) -> str | None:
        """Return why an update must be rejected: for no reason of privacy."""

    @property
    def is_spent(self) -> bool:
        """Whether another round would exceed the budget."""
        return self.account.is_spent

    def announce(self, rounds: int) -> None:
        """Say what the run will spend, and what it has spent if it is resumed."""
        account, mechanism, planned = self.account, self.account.mechanism, self.epsilon_after(rounds)
        log.warning(
            "privacy: noise_multiplier = %g, %d of %d clients a round%s: epsilon = %.4g after %d rounds, delta %g%s; "
            "%s",
            *(mechanism.noise_multiplier, self.clients, mechanism.total, self._as_all, planned, rounds),
            *(account.delta, f", {account.epsilon:.4g} of it is spent" if account.releases else "", self.chance.words),
        )

    @property
    def _as_all(self) -> str:
        """Say so if sampling hides nothing."""
        is_counted = self.account.mechanism.sampled > self.clients
        return " (counted as all, since clients remember the rounds that they were in)" if is_counted else ""

    def epsilon_after(self, rounds: int) -> float:
        """Return what this many rounds spend."""
        return self.account.mechanism.epsilon(rounds, self.account.delta)

    def begin(self) -> None:
        """Start the account of a new run."""
        self.account.begin()

    def resume(self, rows: Sequence[Row], rounds: int) -> None:
        """Continue the account of a run with these rows, of which the checkpoint covers this many rounds."""
        check_origin(rows, self.chance.words)
        if rows and "releases" in rows[-1]:
            check_spent(rows[-1], self.epsilon_after(rows[-1]["releases"]))
        self.account.resume(rounds, len(rows), max((row.get("releases", 0) for row in rows), default=0))

    def columns(self, before: ServerState) -> dict[str, Any]:
        """Return what the row of a round says."""
        account = self.account
        return {
            "epsilon": finite(account.epsilon),
            "delta": account.delta,
            "epsilon_next": finite(account.next_epsilon),
            "releases": account.releases,
            "clip_norm": before.clip_norm or self.settings.first_norm,
            "unit": "client",
            "noise": self.chance.words,
        }


def _moved(anchor: Weights, change: Weights) -> Weights:
    return {name: (tensor.double() + change[name]).to(tensor.dtype) for name, tensor in anchor.items()}


def with_privacy(federation: Federation, known_noise: float | None = None) -> Federation:
    """Return the federation with the noise of `[privacy]` resolved, or raise `InputError` if it would not cover.

    `known_noise` is that of the run that is resumed.
    """
    settings = federation.experiment.privacy
    if not settings.is_on:
        if settings.clipping is None and (key := settings.first_changed):
            log.warning("privacy.%s: changes nothing, since neither epsilon nor noise_multiplier is set", key)
        return federation
    _check_method(federation)
    require_accounting()
    _warn_of_delta(federation)
    noise = known_noise
    if noise is None or settings.noise_multiplier is not None:
        noise = _noise_of_sums(federation) if settings.covers_clients else _noise_of_steps(federation)
    resolved = {"privacy.clipping": settings.clipping or "server", "privacy.noise_multiplier": noise}
    federation = replace(federation, experiment=federation.experiment.override(resolved))
    if settings.epsilon is None or (settings.covers_samples and federation.experiment.data.name == PRIVATE):
        return federation  # of private data, nodes alone know what a round spends
    rounds = private_rounds(federation, None)
    assert rounds is not None
    first = rounds.epsilon_after(1)
    if first > settings.epsilon:
        raise InputError(
            f"privacy.epsilon: must be at least {first:.4g}, what one round spends with noise_multiplier = {noise:g} "
            f"(got {settings.epsilon:g})"
        )
    return federation


def _warn_of_delta(federation: Federation) -> None:
    """Warn of a delta by which one of those to protect may be revealed entirely."""
    settings, sizes = federation.experiment.privacy, _sizes(federation)
    count, unit = (len(sizes), "clients") if settings.covers_clients else (max(sizes), "samples of a client")
    if settings.delta * count >= 1:
        log.warning(
            "privacy.delta: %g is too much for %d %s: whatever epsilon is, all of one of them may be revealed; set it "
            "far below 1 / %d",
            *(settings.delta, count, unit, count),
        )


def mechanism_of(experiment: Experiment, clients: int, state: State) -> Mechanism:
    """Return what every round releases, of this many clients that have this state before their first job.

    Where clients remember something, sampling hides nothing: their later updates depend on the rounds that they were
    in, and so tell who else was in these. Then a round counts as if all clients were in it.
    """
    settings, sampled = experiment.privacy, sample_size(experiment, clients)
    return Mechanism(clients if state else sampled, clients, settings.noise_multiplier or 0.0, settings.accountant)


ASSUMED = {
    "client": "Neighbors differ in one client's data, replaced by any other; how many clients there are is known, "
    "which of them a round has is not; all global models are seen, and the server is trusted",
    "example": "Neighbors differ in one sample of a client, replaced by any other; how many samples it has is known, "
    "which of them a step uses is not; all that it sends is seen, by the server too, and the client itself is trusted",
}
"""What an epsilon assumes, by `privacy.level`."""


def remembered(federation: Federation) -> State:
    """Return what a client takes from one job to its next; empty if it remembers nothing."""
    return expected_answers(federation, federation.initial_server(), federation.initial_state())[1]


def plan_privacy(experiment: Experiment, sizes: Sequence[int], state: State) -> str:
    """Return in words what an experiment will spend, and what that assumes; empty without privacy.

    The sizes are the numbers of samples that the clients train on; the state is what each of them remembers.
    """
    settings, rounds = experiment.privacy, experiment.rounds
    if not settings.is_on:
        return ""
    require_accounting()
    assert rounds is not None
    if settings.covers_samples:
        noise, of = noise_for_samples(experiment, sizes), " of any sample"
        experiment = experiment.override({"privacy.noise_multiplier": noise})
        spent = PrivateSamples(experiment, sizes).epsilon_after(rounds)
    else:
        mechanism = mechanism_of(experiment, len(sizes), state)
        noise, of = _noise_for_rounds(experiment, mechanism), " (every round counts as one of all)" if state else ""
        spent = replace(mechanism, noise_multiplier=noise).epsilon(rounds, settings.delta)
    exceeds = settings.epsilon is not None and spent > settings.epsilon
    return (
        f"privacy: with noise_multiplier = {noise:g}, {rounds} rounds spend epsilon = {spent:.4g}{of} at delta = "
        f"{settings.delta:g}{f', but it stops at {settings.epsilon:g}' if exceeds else ''}. {ASSUMED[settings.level]}"
    )


def _noise_for_rounds(experiment: Experiment, mechanism: Mechanism) -> float:
    """Return the noise multiplier of releases: the experiment's, the least that its epsilon needs, or 1."""
    settings, rounds = experiment.privacy, experiment.rounds
    assert rounds is not None
    return chosen_noise(settings, lambda epsilon: solve_noise(mechanism, rounds, epsilon, settings.delta))


def _noise_of_sums(federation: Federation) -> float:
    """Return the noise multiplier of the sums of updates."""
    experiment = federation.experiment
    return _noise_for_rounds(experiment, mechanism_of(experiment, federation.clients, remembered(federation)))


def _noise_of_steps(federation: Federation) -> float:
    """Return the noise multiplier of local steps, or raise `InputError` where only nodes could solve for it."""
    experiment = federation.experiment
    if experiment.data.name == PRIVATE and experiment.privacy.epsilon and experiment.privacy.noise_multiplier is None:
        raise InputError(
            "privacy.noise_multiplier: is missing; only the nodes of private data know how many samples they have. "
            "For a number of samples, fedsol estimate --examples says what privacy.epsilon needs"
        )
    return noise_for_samples(experiment, _sizes(federation))


def _sizes(federation: Federation) -> list[int]:
    """Return how many samples each client trains on; 0 if only its node knows."""
    return [len(federation.training_samples(client)) for client in range(federation.clients)]


def _check_method(federation: Federation) -> None:
    """Raise `InputError` for a method or a model of which more is released than the noise covers."""
    name = federation.experiment.algorithm["name"]
    if trains_alone(federation.experiment):
        raise InputError(
            f"privacy: is not allowed with {name}, which releases nothing: no client takes part in a round"
        )
    if federation.experiment.privacy.covers_samples:
        check_statistics(federation.model.buffers)  # even those that stay at home: other samples' gradients use them
        return
    check_statistics(set(federation.model.buffers) - set(federation.exchange.kept))
    payload, _ = expected_answers(federation, federation.initial_server(), federation.initial_state())
    if payload:
        sent = ", ".join(sorted({key.partition("/")[0] for key in payload}))
        raise InputError(
            f"privacy: is not allowed with {name}: its clients send more than weights ({sent}), which the noise would "
            "not cover"
        )
    if federation.algorithm.compares_updates:
        raise InputError(
            f"privacy: is not allowed with {name}: its server compares the clients' updates, and sees only their mean"
        )
    unseen = federation.experiment.data.partition.unseen
    if unseen:
        raise InputError(f"data.partition.unseen: must be 0 with [privacy], which counts all clients (got {unseen:g})")


def _deployed_samples(federation: Federation) -> DeployedSamples:
    """Return the rounds of a deployment whose nodes protect their samples, or raise `InputError` for tests on these."""
    held_out = federation.experiment.data.partition.held_out
    if held_out:
        raise InputError(
            f"data.partition.held_out: must be 0 with privacy.level = 'example' in a deployment, whose nodes send no "
            f"results on their samples: no noise covers them (got {held_out:g})"
        )
    return DeployedSamples(federation.experiment, _sizes(federation))


def private_rounds(federation: Federation, deployed_in: Path | None) -> PrivateRounds | PrivateSamples | None:
    """Return the private rounds of a simulation, or of a deployment with this run directory; None if it is off."""
    experiment = federation.experiment
    settings, total = experiment.privacy, federation.clients
    if not settings.is_on:
        return None
    if settings.covers_samples:
        return PrivateSamples(experiment, _sizes(federation)) if deployed_in is None else _deployed_samples(federation)
    mechanism, sampled = mechanism_of(experiment, total, remembered(federation)), sample_size(experiment, total)
    stays = {*federation.untrained, *federation.exchange.kept}
    released = tuple(name for name in federation.model.names if name not in stays)
    account = Account(mechanism, settings.delta, settings.epsilon)
    chance = Chance(
        SIMULATED,
        lambda round_number: simulated(experiment.seed, round_number),
        lambda round_number: sample_clients(experiment, total, round_number),
    )
    if deployed_in is not None:
        account = DeployedAccount(mechanism, settings.delta, settings.epsilon, folder=deployed_in)
        chance = Chance(FROM_SYSTEM, lambda _round: from_system, lambda _round: secret_sample(sampled, total))
    return PrivateRounds(settings, account, released, sampled, chance)
