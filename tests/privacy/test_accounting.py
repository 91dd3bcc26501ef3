"""Epsilon is dp-accounting's own, and solved noise meets its budget from below."""

import math
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fedsol.errors import InputError
from fedsol.privacy.accounting import Mechanism, _rounded_up, sampled_delta, solve_noise

REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE
SETTINGS = [  # sampled, total, noise multiplier, releases, delta
    (4, 20, 1.5, 6, 1e-5),
    (20, 20, 2.0, 10, 1e-5),
    (10, 10, 20.0, 100, 1e-5),
    (10, 100, 1.0, 1, 1e-5),
    (10, 100, 2.0, 300, 1e-5),
    (5, 50, 4.0, 50, 1e-3),
    (10, 1000, 1.5, 1000, 1e-6),
    (50, 1000, 1.0, 100, 1e-6),
    (4, 20, 8.0, 30, 1e-2),
    (1, 3, 3.0, 20, 1e-4),
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_epsilon_by_renyi_divergences_is_that_of_dp_accounting(setting):
    sampled, total, noise, releases, delta = setting
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=REPLACE)
    # A sum of vectors of length 1 changes by up to 2 if one is replaced: the noise is half as many sensitivities.
    event = dp_accounting.GaussianDpEvent(noise / 2)
    if sampled < total:
        event = dp_accounting.SampledWithoutReplacementDpEvent(total, sampled, event)
    accountant.compose(event, releases)
    assert Mechanism(sampled, total, noise, "rdp").epsilon(releases, delta) == accountant.get_epsilon(delta)


@pytest.mark.parametrize("setting", SETTINGS)
def test_epsilon_by_loss_distributions_is_that_of_dp_accounting_where_it_has_one(setting):
    """It has no distribution for sampling without replacement; a single round, and one of all clients, need none.

    Otherwise it lies between that of Poisson sampling, which replaces nobody's place, and the Rényi bound.
    """
    sampled, total, noise, releases, delta = setting
    found = Mechanism(sampled, total, noise).epsilon(releases, delta)
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    event = dp_accounting.PoissonSampledDpEvent(sampled / total, dp_accounting.GaussianDpEvent(noise / 2))
    poisson = accountant.compose(event, releases).get_epsilon(delta)
    if sampled == total or releases == 1:
        assert found == pytest.approx(poisson, rel=1e-3)
    else:
        assert poisson < found < 1.25 * poisson
        assert found < Mechanism(sampled, total, noise, "rdp").epsilon(releases, delta)


def test_all_clients_are_replaced_at_twice_the_norm():
    """The Gaussian mechanism in closed form (Balle and Wang, 2018, theorem 8), at sensitivity 2."""
    noise, releases, delta = 3.0, 7, 1e-5
    epsilon = Mechanism(5, 5, noise).epsilon(releases, delta)
    distance = 2 * math.sqrt(releases) / noise
    exact = norm.cdf(distance / 2 - epsilon / distance) - math.exp(epsilon) * norm.cdf(
        -distance / 2 - epsilon / distance
    )
    assert exact == pytest.approx(delta, rel=1e-3)


@pytest.mark.parametrize(("share", "std"), [(0.1, 1.0), (0.5, 2.0), (1.0, 0.7)])
def test_delta_of_one_sampled_release_is_the_integral(share, std):
    """Of the worst pair: everyone else sends the same vector, and the one client the opposite."""

    def excess(x, epsilon):
        without, included = norm.pdf(x, 0, std), norm.pdf(x, 1, std)
        return max(0.0, (1 - share) * without + share * included - math.exp(epsilon) * without)

    for epsilon in (0.0, 0.3, 2.0):
        integral, _ = quad(excess, -12, 12, args=(epsilon,), limit=500)
        assert sampled_delta(np.array([epsilon]), share, std)[0] == pytest.approx(integral, abs=1e-8)


@pytest.mark.parametrize(
    ("epsilon", "sampled", "total", "releases", "accountant"),
    [(8, 4, 20, 6, "pld"), (2, 10, 100, 50, "pld"), (1, 5, 5, 3, "pld"), (1, 5, 5, 3, "rdp")],
)
def test_solved_noise_meets_its_budget_from_below(epsilon, sampled, total, releases, accountant):
    mechanism = Mechanism(sampled, total, 0.0, accountant)
    noise = solve_noise(mechanism, releases, epsilon, 1e-5)
    spent = replace(mechanism, noise_multiplier=noise).epsilon(releases, 1e-5)
    assert 0.99 * epsilon < spent <= epsilon
    assert noise == float(f"{noise:.4g}")


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_noise_solved_for_what_a_noise_spends_is_that_noise(setting):
    sampled, total, noise, releases, delta = setting
    budget = Mechanism(sampled, total, noise).epsilon(releases, delta)
    solved = solve_noise(Mechanism(sampled, total, 0.0), releases, budget, delta)
    spent = Mechanism(sampled, total, solved).epsilon(releases, delta)
    assert noise <= solved <= 1.001 * noise
    assert 0.99 * budget < spent <= budget


def test_numbers_are_rounded_up_to_four_digits():
    assert [_rounded_up(value) for value in (1.0, 1.00001, 0.123412, 98765.4)] == [1.0, 1.001, 0.1235, 98770.0]


def test_no_release_spends_nothing_and_no_noise_everything():
    assert Mechanism(1, 2, 1.0).epsilon(0, 1e-5) == 0
    assert Mechanism(1, 2, 0.0).epsilon(1, 1e-5) == math.inf
    with pytest.raises(InputError, match="too little for 1000000000 releases"):
        solve_noise(Mechanism(1, 1, 0.0), 10**9, 1e-4, 1e-9)
