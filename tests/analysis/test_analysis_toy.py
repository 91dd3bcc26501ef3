"""The toy example ends where the paper's formulas say. (Propositions 1 and 2: tests/algorithms/test_theory.py.)"""

import math

import pytest

from fedsol.analysis.toy import ToySettings, fedprox_fixed_point, fedsol_fixed_point, toy
from fedsol.errors import InputError


def test_the_fixed_points_by_hand():
    settings = ToySettings(minimum=(3.0, 4.0), delta=0.1, mu=0.5, rho=1.0)
    assert fedprox_fixed_point(settings) == pytest.approx((2.0, 0.1 * 4 / 0.6))
    assert fedsol_fixed_point(settings) == pytest.approx((2.4, 3.2))  # 5 long, then 4


def test_both_ways_end_at_their_fixed_points():
    found = toy(ToySettings(minimum=(2.0, 1.0), lr=0.3, steps=400))
    assert [path.method for path in found.paths] == ["fedprox", "fedsol"]
    for path in found.paths:
        assert len(path.places) == 401
        assert path.places[0] == (1.0, 1.0)
        assert path.places[-1] == pytest.approx(path.fixed_point, abs=1e-4)


def test_fedsol_keeps_the_direction_of_the_minimum_and_fedprox_does_not():
    prox, sol = (path.places[-1] for path in toy(ToySettings(lr=0.3, steps=300)).paths)
    assert math.atan2(sol[1], sol[0]) == pytest.approx(math.pi / 4, abs=1e-3)
    assert math.atan2(prox[1], prox[0]) < math.pi / 8


def test_a_step_by_hand():
    """At (1, 1) with the minimum there too: fedprox's gradient is mu w, fedsol's rho times a unit, by curvature."""
    prox, sol = (path.places[1] for path in toy(ToySettings(lr=1.0, steps=1)).paths)
    assert prox == pytest.approx((0.5, 0.5))
    assert sol == pytest.approx((1 - 0.5 / math.sqrt(2), 1 - 0.1 * 0.5 / math.sqrt(2)))


def test_a_perturbation_past_the_minimum_is_refused():
    with pytest.raises(InputError, match=r"toy: rho: must be 0 to below .* \(got 2\)"):
        toy(ToySettings(rho=2))
