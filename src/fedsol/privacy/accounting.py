"""Epsilon and delta of a run, by Google's dp-accounting (its only home here), and the noise that meets a budget.

Two federations are neighbors if one client's data (or, with `level = "example"`, one sample) is replaced by any other;
how many there are is no secret. Replacing one changes a sum of clipped vectors by up to twice the clipping norm, so the
noise multiplier counts half. Where a round samples k of n without replacement, replacing one is amplified as Balle et
al., "Privacy Amplification by Subsampling", NeurIPS 2018, theorem 11 says; the pair of distributions that dominates it
for composition is that of Zhu, Dong and Wang, "Optimal Accounting of Differential Privacy via Characteristic Function",
AISTATS 2022, theorem 11.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedsol.config.privacy import LARGEST_NOISE, SMALLEST_NOISE
from fedsol.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Accountant = Literal["pld", "rdp"]

CLOSE_ENOUGH = 1.0005
"""The solved noise is at most this many times what the budget needs."""

STEP = 1e-3
"""The longest step of a discretized privacy loss, unless that takes too many. It rounds up: epsilon is a bound."""

STEPS, COMPOSED_STEPS = 2**17, 2**22
"""How many steps the loss of one release, and of all, may take."""

TAIL = 10.0
"""Standard deviations of the noise beyond which the loss counts as infinite: a probability of 1e-23."""


@dataclass(frozen=True)
class Mechanism:
    """What is released each time: the sum of clipped vectors of `sampled` out of `total`, with Gaussian noise."""

    sampled: int
    total: int
    noise_multiplier: float
    """Standard deviation of the noise in units of the clipping norm."""
    accountant: Accountant = "pld"

    def epsilon(self, releases: int, delta: float) -> float:
        """Return the epsilon of so many releases; infinite without noise, 0 without vectors."""
        if not releases or not self.sampled:
            return 0.0
        if not self.noise_multiplier:
            return math.inf
        return _epsilon(self, releases, delta)


def require_accounting() -> None:
    """Raise `InputError` if dp-accounting, an optional dependency, is not installed."""
    if find_spec("dp_accounting") is None:
        raise InputError("privacy: requires dp-accounting, which is not installed; run: pip install 'fedsol[privacy]'")


def solve_noise(mechanism: Mechanism, releases: int, epsilon: float, delta: float) -> float:
    """Return the smallest noise multiplier, to four digits, by which so many releases spend at most epsilon."""

    def spends_less(noise: float) -> bool:
        return replace(mechanism, noise_multiplier=noise).epsilon(releases, delta) <= epsilon

    high = 2 * math.sqrt(2 * releases * math.log(1.25 / delta)) / min(epsilon, 1.0)  # enough if all are sampled
    if high > LARGEST_NOISE:
        raise InputError(
            f"privacy.epsilon: {epsilon:g} is too little for {releases} releases, which may need a noise multiplier of "
            f"{high:.2g}; at most {LARGEST_NOISE:g} is allowed"
        )
    while not spends_less(high):
        high *= 2
    low = high / 2
    while spends_less(low) and low > SMALLEST_NOISE:
        low, high = low / 2, low
    while high > CLOSE_ENOUGH * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spends_less(middle) else (middle, high)
    return max(SMALLEST_NOISE, _rounded_up(high))


def _rounded_up(value: float) -> float:
    """Return the next number with four significant digits, or the number itself."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return float(f"{math.ceil(value / unit) * unit:.4g}")


@lru_cache(maxsize=4096)
def _epsilon(mechanism: Mechanism, releases: int, delta: float) -> float:
    if mechanism.accountant == "rdp":
        return _renyi_epsilon(mechanism, releases, delta)
    composed = _loss_distribution(mechanism, _step(mechanism, releases)).self_compose(releases)
    return float(composed.get_epsilon_for_delta(delta))


def _renyi_epsilon(mechanism: Mechanism, releases: int, delta: float) -> float:
    """Return epsilon by Rényi differential privacy (Wang, Balle and Kasiviswanathan, AISTATS 2019, theorem 27)."""
    require_accounting()
    import dp_accounting

    event: Any = dp_accounting.GaussianDpEvent(mechanism.noise_multiplier / 2)
    if mechanism.sampled < mechanism.total:
        event = dp_accounting.SampledWithoutReplacementDpEvent(mechanism.total, mechanism.sampled, event)
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    return float(accountant.compose(event, releases).get_epsilon(delta))


@lru_cache(maxsize=64)
def _loss_distribution(mechanism: Mechanism, step: float) -> Any:
    """Return the privacy loss distribution of one release, in steps."""
    require_accounting()
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    count = math.ceil(_largest_loss(mechanism) / step)
    losses = step * np.arange(count + 1, dtype=np.float64)
    share, std = mechanism.sampled / mechanism.total, mechanism.noise_multiplier / 2
    above = np.minimum.accumulate(sampled_delta(losses, share, std))
    # Of a pair whose order does not matter: the delta of a negative epsilon follows from that of the positive one.
    below = np.exp(-losses[:0:-1]) * above[:0:-1] - np.expm1(-losses[:0:-1])
    deltas = np.concatenate([below, above])
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -count, count, deltas)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


def _step(mechanism: Mechanism, releases: int) -> float:
    """Return a step, a power of 2: much shorter than a typical loss, unless that takes too many steps."""
    share, std = mechanism.sampled / mechanism.total, mechanism.noise_multiplier / 2
    mean = min(0.5 * share / std**2, math.log1p(share**2 * math.expm1(min(1 / std**2, 700.0))))
    spread = releases * mean + 12 * math.sqrt(2 * releases * mean)
    wanted = min(STEP, share / mechanism.noise_multiplier / 20)
    return 2.0 ** math.ceil(math.log2(max(wanted, _largest_loss(mechanism) / STEPS, spread / COMPOSED_STEPS)))


def _largest_loss(mechanism: Mechanism) -> float:
    """Return the privacy loss of one release that is exceeded almost never."""
    share, std = mechanism.sampled / mechanism.total, mechanism.noise_multiplier / 2
    unsampled = math.log1p(-share) if share < 1 else -math.inf
    return float(np.logaddexp(unsampled, math.log(share) + 0.5 / std**2 + TAIL / std))


def sampled_delta(epsilons: "NDArray[np.float64]", share: float, std: float) -> "NDArray[np.float64]":
    """Return delta for each epsilon of 0 or more: of a Gaussian of sensitivity 1, on a sampled share of the vectors.

    That is `share` times the delta of the Gaussian at `log(1 + (exp(epsilon) - 1) / share)`.
    """
    from scipy.special import log_ndtr, ndtr

    inner = epsilons + np.log1p(-(1 - share) * np.exp(-epsilons)) - math.log(share)
    delta = ndtr(0.5 / std - inner * std) - np.exp(inner + log_ndtr(-0.5 / std - inner * std))
    found: NDArray[np.float64] = np.clip(share * delta, 0.0, 1.0)
    return found
